package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// egressPath is a read-only directory of a machine with the sockets of its
// attendants. Its network namespace stays the empty one, so there is nothing to
// route.
// Source: design "Egress" (socket file).
const egressPath = "/run/checkfu/egress"

// StartAttendant starts the process that answers behind one socket of one
// machine, and returns once it listens. The caller closes listener and log
// afterwards. An error leaves no process.
type StartAttendant func(ctx context.Context, config []byte, listener, log *os.File) (Attendant, error)

// Attendant is one such process. It ends with the process that started it.
type Attendant interface {
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Stop ends it and returns when it has ended. It may be called again.
	Stop(ctx context.Context) error
	// Err is how it ended, once Done: nil where it ended as it was told to.
	Err() error
}

// post is a place for an attendant: where the machine meets it, and what it is
// told.
type post struct {
	name   string // of the attendant, in errors
	step   string // of the lifecycle, once it runs
	socket string // its file in egressPath
	port   int    // of the machine's loopback, which leads there
	log    string // host path
	config []byte
	start  StartAttendant
	holder *Attendant // who has it, from the start to the stop; under the instance's lock
}

// posts are the instance's own: a guard for an allowlist, a relay for a lease.
func (in *instance) posts() []post {
	var all []post
	if in.guarded() {
		all = append(all, post{
			name: "egress guard", step: "guarded", socket: guardSocket, port: proxyPort, log: in.at.decisions(),
			config: in.policy, start: in.p.opt.Egress.start, holder: &in.guard,
		})
	}
	if in.lease != nil || in.ahead && in.p.opt.Model != nil { // the lease comes with the claim
		all = append(all, post{
			name: "model relay", step: "relayed", socket: relaySocket, port: relayPort, log: in.at.requests(),
			config: in.route, start: in.p.opt.Model.Start, holder: &in.relay,
		})
	}
	return all
}

// addPosts gives the machine its ways to the attendants.
func (in *instance) addPosts(spec *machine.Spec) {
	posts := in.posts()
	if len(posts) == 0 {
		return
	}
	spec.Binds = append(spec.Binds, machine.Bind{Source: in.at.egress(), Destination: egressPath, ReadOnly: true})
	for _, p := range posts {
		spec.Forwards = append(spec.Forwards, machine.Forward{Port: p.port, Socket: egressPath + "/" + p.socket})
	}
}

// maxAttendantLog bounds the log of one attendant in bytes, give or take what is
// written within logCheck. The attendant of a longer one is ended, and with it
// everything that its machine can reach there. Who looks is this process: a limit
// of the attendant's own would be one more thing that it has to be trusted for,
// and setting one from outside takes a power over the host that nothing else here
// needs.
const (
	maxAttendantLog = 32 << 20
	logCheck        = time.Second
)

// door is what an attendant is started on: the socket that the machine will see,
// and the log.
type door struct{ listener, log *os.File }

func (d door) close() { _ = errors.Join(d.listener.Close(), d.log.Close()) }

// openDoors makes all of them. A log lies there before its attendant runs and is
// open in it for as long as it lives: by that a sweep knows it.
func (in *instance) openDoors(posts []post) (doors []door, err error) {
	defer func() {
		if err != nil {
			for _, d := range doors {
				d.close()
			}
		}
	}()
	if err := os.Mkdir(in.at.egress(), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	for _, p := range posts {
		log, err := os.OpenFile(p.log, os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return doors, err
		}
		listener, err := listenAt(in.at.egress(), p.socket)
		if err != nil {
			log.Close()
			return doors, err
		}
		doors = append(doors, door{listener, log})
	}
	in.p.opt.Step("egress")
	return doors, nil
}

// attend starts an attendant and holds that it does what it was told. It takes
// the door over.
func (in *instance) attend(ctx context.Context, p post, d door) error {
	// No copy of the listener of ours: with the attendant gone nobody listens, and
	// a connection is refused instead of waiting in a queue that nobody serves.
	defer d.close()
	a, err := p.start(ctx, p.config, d.listener, d.log)
	if err != nil {
		return fmt.Errorf("start the %s: %w", p.name, err)
	}
	in.mu.Lock()
	*p.holder = a
	in.mu.Unlock()
	in.p.opt.Step(p.step)
	go boundLog(a, p.log, time.NewTicker(logCheck))
	return p.told(d.log)
}

// told holds that an attendant has what was compiled for it and nothing else: the
// first line of its log names the digest.
func (p post) told(log *os.File) error {
	const most = 64 << 10
	var start struct {
		Config string `json:"config"`
	}
	if err := json.NewDecoder(io.NewSectionReader(log, 0, most)).Decode(&start); err != nil {
		return fmt.Errorf("the first line of the %s's log: %w", p.name, err)
	}
	if want := canonical.Digest(p.config); start.Config != want {
		return fmt.Errorf("the %s holds another configuration: expected %s, got %q", p.name, want, start.Config)
	}
	return nil
}

// runs reports whether the attendant at a post does.
func (in *instance) runs(p post) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if *p.holder == nil {
		return false
	}
	select {
	case <-(*p.holder).Done():
		return false
	default:
		return true
	}
}

// boundLog ends the attendant of a log that is too long.
func boundLog(a Attendant, path string, tick *time.Ticker) {
	defer tick.Stop()
	for {
		select {
		case <-a.Done():
			return
		case <-tick.C:
		}
		if info, err := os.Lstat(path); err == nil && info.Size() <= maxAttendantLog {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), teardownBound)
		_ = a.Stop(ctx) // else the next look, or the end of the instance
		cancel()
	}
}

// dismiss ends the attendants that there are.
func (in *instance) dismiss(ctx context.Context) error {
	var failures []error
	for _, p := range in.posts() {
		in.mu.Lock()
		a := *p.holder
		in.mu.Unlock()
		if a == nil {
			continue
		}
		if err := a.Stop(ctx); err != nil {
			failures = append(failures, fmt.Errorf("stop the %s: %w", p.name, err))
			continue
		}
		in.mu.Lock()
		*p.holder = nil
		in.mu.Unlock()
	}
	return errors.Join(failures...)
}

// listenAt makes a listening socket file in dir. Its path is named by descriptor:
// a state directory may be longer than a socket address.
func listenAt(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(at)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), path)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(at) + "/" + name})
	if err == nil {
		// The workload may connect to it directly: it is the same attendant. Nobody
		// but root and the machines' ids comes as far as this directory.
		err = errors.Join(os.Chmod(path, 0o666), unix.Listen(fd, 4096))
	}
	if err != nil {
		file.Close()
		return nil, wrap("listen on "+path, err)
	}
	return file, nil
}
