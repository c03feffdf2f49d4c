package memory

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Why a program stops before it is done.
var (
	errKilled   = errors.New("killed")   // the job was killed
	errDeadline = errors.New("deadline") // the command's time is over
	//lint:ignore ST1005 the system's own words, shown as a shell shows them
	errExec = errors.New("Exec format error") // not a program
	//lint:ignore ST1005 likewise
	errFork   = errors.New("Cannot fork")       // too deep
	errSignal = errors.New("ended by a signal") // SIGPIPE, or kill $$
)

// What work costs in simulated time. A command has no other time than this and
// what it sleeps, so the same command always takes the same time.
const (
	commandCost = 500 * time.Microsecond // one simple command
	byteCost    = 16                     // nanoseconds for one byte moved
)

// maxDepth bounds how deep scripts may start scripts, maxLive how many stages
// of pipelines run at once in one machine.
const (
	maxDepth = 64
	maxLive  = 1024
)

// job is one command or live process with all that it starts.
type job struct {
	m        *machine
	pid      int64
	deadline time.Duration // of a command; 0 in a live process
	clock    Clock
	in, out  *pipe // of a live process; nil in a command

	mu      sync.Mutex
	signal  string          // what killed it
	ignored map[string]bool // signals that trap '' took away
	pipes   []*pipe
	done    chan struct{} // closed when killed
	killed  atomic.Bool
}

func newJob(m *machine, clock Clock, deadline time.Duration) *job {
	return &job{m: m, pid: m.pids.Add(1), clock: clock, deadline: deadline, done: make(chan struct{}), ignored: map[string]bool{}}
}

// kill ends everything that belongs to the job. A signal that the program
// ignores does nothing.
func (j *job) kill(signal string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.killed.Load() || signal != "SIGKILL" && j.ignored[signal] {
		return
	}
	j.signal = signal
	j.killed.Store(true)
	close(j.done)
	for _, p := range j.pipes {
		p.shut()
	}
}

// pipe makes a pipe that ends with the job.
func (j *job) pipe() *pipe {
	p := newPipe()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.killed.Load() {
		p.shut()
	}
	j.pipes = append(j.pipes, p)
	return p
}

// leave closes what the first program of a live process gave up by exec: its
// input and output end there, and it lives on.
func (j *job) leave(c *Call) {
	if r, ok := c.Stdin.(reader); j.in != nil && !(ok && r.from == io.Reader(j.in)) {
		j.in.closeRead(errBrokenPipe)
	}
	holds := func(w io.Writer) bool {
		bound, ok := w.(writer)
		return ok && bound.to == io.Writer(j.out)
	}
	if j.out != nil && !holds(c.Stdout) && !holds(c.Stderr) {
		j.out.closeWrite(io.EOF)
	}
}

// drop forgets a pipe that both sides are done with.
func (j *job) drop(p *pipe) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.pipes {
		if j.pipes[i] == p {
			j.pipes = append(j.pipes[:i], j.pipes[i+1:]...)
			return
		}
	}
}

// stage is one thread of a job: one stage of a pipeline, or the whole of it.
type stage struct {
	job     *job
	elapsed time.Duration // simulated
	depth   int
	stop    error  // why it must end; sticky
	signal  string // with errSignal
}

// charge lets simulated time pass and says whether the program must stop.
func (s *stage) charge(d time.Duration) error {
	if s.stop != nil {
		return s.stop
	}
	if s.job.killed.Load() {
		s.stop = errKilled
		return s.stop
	}
	s.elapsed += d
	if s.job.deadline > 0 && s.elapsed >= s.job.deadline {
		s.elapsed = s.job.deadline
		s.stop = errDeadline
	}
	return s.stop
}

// sleep lets d pass. A command's sleep takes no real time; a live process
// waits for the clock.
func (s *stage) sleep(d time.Duration) error {
	if s.job.deadline > 0 {
		return s.charge(d)
	}
	var wake <-chan time.Time
	if w, ok := s.job.clock.(Waiter); ok && d < forever {
		wake = w.After(d)
	}
	select {
	case <-wake:
	case <-s.job.done:
	}
	return s.charge(0)
}

// forever is longer than any deadline.
const forever = time.Duration(1<<63 - 1)

// block waits for what never comes.
func (s *stage) block() error {
	if s.job.deadline > 0 {
		return s.charge(s.job.deadline)
	}
	return s.sleep(forever)
}

// die ends the stage by a signal.
func (s *stage) die(signal string) error {
	if s.stop == nil {
		s.stop, s.signal = errSignal, signal
	}
	return s.stop
}

// reader is a stage's view of a stream: it costs time, and ends with the stage.
type reader struct {
	s    *stage
	from io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.s.charge(0); err != nil {
		return 0, err
	}
	n, err := r.from.Read(b)
	switch {
	case r.s.job.killed.Load():
		return 0, r.s.charge(0)
	case err == errDeadline:
		return n, r.s.charge(forever / 2)
	}
	if stop := r.s.charge(time.Duration(n) * byteCost); stop != nil {
		return n, stop
	}
	return n, err
}

// writer is the same for an output.
type writer struct {
	s  *stage
	to io.Writer
}

func (w writer) Write(b []byte) (int, error) {
	if err := w.s.charge(time.Duration(len(b)) * byteCost); err != nil {
		return 0, err
	}
	n, err := w.to.Write(b)
	return w.settle(n, err)
}

// settle turns the failure of a stream into the end of the stage.
func (w writer) settle(n int, err error) (int, error) {
	switch {
	case w.s.job.killed.Load():
		return n, w.s.charge(0)
	case err == errKilled:
		w.s.stop = errKilled
	case err == errDeadline:
		return n, w.s.charge(forever / 2)
	case err == errBrokenPipe:
		return n, w.s.die("SIGPIPE")
	}
	return n, err
}

// machine is what a job runs on.
type machine struct {
	tree     *tree
	platform sandbox.Platform
	policy   sandbox.NetworkPolicy
	programs map[string]Program
	depth    int // how deep programs may start programs

	pids      atomic.Int64
	live      atomic.Int64 // stages of pipelines that run
	processes int64        // the most of them; a fork bomb must not reach the host
}

// reach says whether the machine's network lets it connect. On an allowlist
// only the very text HOST:PORT of a destination does: no subdomain, no other
// spelling, no address.
// Source: grading "The current posture", row Memory.
func (m *machine) reach(host, port string) bool {
	switch m.policy.Mode {
	case sandbox.NetworkUnrestricted:
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0 && host != "" && !strings.ContainsAny(host, " /\x00")
	case sandbox.NetworkAllowlist:
		for _, d := range m.policy.Destinations {
			if d.Host == host && strconv.FormatInt(d.Port, 10) == port {
				return true
			}
		}
	}
	return false
}
