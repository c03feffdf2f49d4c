package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// live is a process of a probe. Every read and write is bounded; the process
// ends with the probe.
type live struct {
	t    *probe.T
	id   sandbox.InstanceID
	p    sandbox.Process
	out  *bufio.Reader
	gone bool // destroyed by the probe itself
}

// program runs a shell script, with args as its parameters.
func program(script string, args ...string) sandbox.ProcessRequest {
	if len(args) > 0 {
		args = append([]string{"sh"}, args...)
	}
	return sandbox.ProcessRequest{
		Executable: "/bin/sh", Arguments: append([]string{"-c", script}, args...), WorkingDirectory: "/",
		Environment: map[string]string{"HOME": sandbox.HomePath, "PATH": "/usr/local/bin:/usr/bin:/bin"},
	}
}

// try opens a process under an id of the form that the Runner mints.
func try(t *probe.T, id sandbox.InstanceID, q sandbox.ProcessRequest) (sandbox.Process, error) {
	return t.Optional().OpenProcess.OpenProcess(t.Context(), id, "pr_"+t.Nonce()+t.Nonce(), q)
}

// start opens a process in m. The probe stops if the target refuses.
func start(t *probe.T, m *probe.Machine, q sandbox.ProcessRequest) *live {
	p, err := try(t, m.ID, q)
	t.Need("open", err)
	l := &live{t: t, id: m.ID, p: p, out: bufio.NewReaderSize(&stream{t: t, from: p.Output()}, maxLine)}
	t.Defer(l.end)
	return l
}

// run opens a script in a machine of its own.
func run(t *probe.T, script string) *live { return start(t, t.Machine(probe.Shape{}), program(script)) }

// end destroys the process where the probe has not done so.
func (l *live) end() {
	if !l.gone {
		_ = l.destroy() // what a teardown owes is held by the probes of destroy
	}
}

func (l *live) destroy() error {
	l.gone = true
	return l.p.Destroy(l.t.Context())
}

// wait is the exit. The probe stops if there is none.
func (l *live) wait() sandbox.Exit {
	exit, err := l.p.Wait(l.t.Context())
	l.t.Need("wait", err)
	return exit
}

// code is an exit code, or -1. That there is one cause only is held elsewhere.
func code(e sandbox.Exit) int64 {
	if e.ExitCode == nil {
		return -1
	}
	return *e.ExitCode
}

// exited spells an exit for a finding.
func exited(e sandbox.Exit) string {
	if e.ExitCode == nil {
		return "signal " + e.Signal
	}
	return fmt.Sprintf("code %d %s", *e.ExitCode, e.Signal)
}

// maxLine is longer than any line of a probe.
const maxLine = 64 << 10

// line is the next line, without its end; what came of it beside an error.
func (l *live) line() (string, error) {
	b, err := l.out.ReadSlice('\n')
	return string(bytes.TrimSuffix(b, []byte{'\n'})), err
}

// expect reads one line and checks it.
func (l *live) expect(check, want string) bool {
	got, err := l.line()
	return l.t.Check(check, err == nil && got == want, fmt.Sprintf("%q", want), came(got, err))
}

// came spells what was read and why there was no more.
func came(got string, err error) string {
	if err == nil {
		return fmt.Sprintf("%q", got)
	}
	return fmt.Sprintf("%q, then %v", got, err)
}

// ending is what until waits for. It is a line of its own also where some of
// what came before it is lost.
func ending(mark string) []byte { return []byte("\n" + mark + "\n") }

// until reads what comes before the line mark, at most most bytes and the line
// break that ending adds.
func (l *live) until(mark string, most int) ([]byte, error) {
	var got []byte
	for len(got) <= most+1 {
		line, err := l.line()
		if err != nil {
			return append(got, line...), err
		}
		if line == mark {
			return bytes.TrimSuffix(got, []byte{'\n'}), nil
		}
		got = append(append(got, line...), '\n')
	}
	return got, errors.New("more than was written")
}

// flood reads and forgets until the stream ends, at most most bytes.
func (l *live) flood(most int64) (int64, error) { return io.CopyN(io.Discard, l.out, most) }

// write hands bytes to the child.
func (l *live) write(b []byte) error {
	_, err := probe.Bounded(l.t, func() (struct{}, error) {
		n, err := l.p.Input().Write(b)
		if err == nil && n != len(b) {
			err = fmt.Errorf("%w: %d of %d bytes", io.ErrShortWrite, n, len(b))
		}
		return struct{}{}, err
	})
	return err
}

// say writes one line. The probe stops if the target does not take it.
func (l *live) say(line string) {
	if err := l.write([]byte(line + "\n")); err != nil {
		l.t.Fatal("input", "a write that is taken", err)
	}
}

func (l *live) halfClose() error {
	_, err := probe.Bounded(l.t, func() (struct{}, error) { return struct{}{}, l.p.Input().Close() })
	return err
}

// feed runs a writer beside the probe. It is over before the probe is: the end
// of the process ends it, or that of the instance. The channel has one value.
func (l *live) feed(write func() error) <-chan error {
	result, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		result <- write()
	}()
	l.t.Defer(func() {
		l.end()
		_ = l.t.Provider().Destroy(l.t.Context(), l.id)
		<-over
	})
	return result
}

// numbered is n lines that each say where they belong.
func numbered(nonce string, n int) []byte {
	b := make([]byte, 0, n*(len(nonce)+10))
	for i := range n {
		b = append(append(b, nonce...), ' ')
		b = append(strconv.AppendInt(b, int64(10_000_000+i), 10), '\n')
	}
	return b
}

// same checks that bytes came through, and says where they did not.
func same(t *probe.T, check string, want, got []byte, err error) bool {
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	return t.Check(check, err == nil && bytes.Equal(want, got), fmt.Sprintf("%d bytes as they were written", len(want)),
		fmt.Sprintf("%d bytes, the same up to %d, %v", len(got), at, err))
}

// movable reports whether time passes on the target's clock without passing
// here.
func movable(t *probe.T) bool {
	_, ok := t.Target().Clock.(interface{ Advance(time.Duration) })
	return ok
}

// moment gives the target's own threads time to do what they should not, by
// the machine's clock: a short one where nothing but this process is involved.
func moment(t *probe.T) {
	d := 300 * time.Millisecond
	if movable(t) {
		d = 4 * time.Millisecond
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// givenUp is a context that is done.
func givenUp(t *probe.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// stream is a byte stream of the target, each read bounded. Nobody else ever
// holds the buffer that the target reads into.
type stream struct {
	t    *probe.T
	from io.Reader
	buf  []byte
	err  error
}

// Read is one read of the target's stream.
func (s *stream) Read(b []byte) (int, error) {
	if s.err != nil || len(b) == 0 {
		return 0, s.err
	}
	if s.buf == nil {
		s.buf = make([]byte, maxLine)
	}
	into := s.buf[:min(len(b), len(s.buf))]
	n, err := probe.Bounded(s.t, func() (int, error) {
		n, err := s.from.Read(into)
		return n, err
	})
	if n < 0 || n > len(into) {
		n, err = 0, fmt.Errorf("a read of %d bytes into %d", n, len(into))
	}
	s.err = err
	return copy(b, into[:n]), err
}
