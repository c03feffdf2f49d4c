package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
)

// The test binary is a keeper where Start executes it, with the memory provider.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[0] == "bad" && os.Args[1] == Argument {
		os.Exit(badKeeper(os.Args[2]))
	}
	if len(os.Args) > 1 && os.Args[1] == Argument {
		if err := Main(context.Background(), openMemory); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(starterDir) != "" {
		os.Exit(starterOfOne())
	}
	os.Exit(m.Run())
}

// wall is the machine's own clock for the memory provider.
type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

func openMemory(_ context.Context, in Inputs) (*Opened, error) {
	if in.Provider != "memory" {
		return nil, fmt.Errorf("there is no %s here", in.Provider)
	}
	return &Opened{Provider: memory.New(memory.Options{Clock: wall{}, Seed: in.LeaseID}), Close: func() error { return nil }, Tunnel: echo}, nil
}

// request is for the machine of a session.
func request(r Record) sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: r.SessionID, RunID: "run", AttemptID: "att", LeaseID: r.LeaseID, LeaseEpoch: 1,
		Target: memory.DefaultTarget, Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"},
		RootImage: testImage, Mounts: []sandbox.Mount{}, ExpiresAt: r.ExpiresAt,
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: testImage, Packages: []sandbox.Package{},
			NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, RetentionMode: sandbox.RetentionEphemeralZDR,
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 64 << 20, DiskBytes: 64 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
		},
	}
}

const testImage = "checkfu.local/memory@sha256:0000000000000000000000000000000000000000000000000000000000000000"

func inAnHour() sandbox.Timestamp { return sandbox.At(time.Now().Add(time.Hour)) }

// start makes a session with a machine, kept, and ends it with the test.
func start(t *testing.T, dir, id string) Record {
	t.Helper()
	s := starting(t, dir, id)
	machine(t, s.Session)
	if err := s.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return s.Record
}

func starting(t *testing.T, dir, id string) *Starting {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: dir, SessionID: id, Provider: "memory", ExpiresAt: inAnHour()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, dir, s.Record.SessionID) })
	return s
}

// end ends a session, and asks that nothing is left of it: no file, no process.
func end(t *testing.T, dir, id string) {
	t.Helper()
	r, _ := placeOf(dir, id).record()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := End(ctx, dir, id, Ending{}); err != nil && !NotFound.Is(err) {
		t.Error(err)
	}
	if r.PID != 0 {
		ended(t, r)
	}
	if left, _ := filepath.Glob(filepath.Join(sessionsDir(dir), id+"*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// ended waits for the end of a keeper: of all its threads, the last of which
// still holds the lock.
func ended(t *testing.T, r Record) {
	t.Helper()
	fd, err := unix.PidfdOpen(int(r.PID), 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if began, err := startTime(r.PID); err != nil || began != r.StartTime {
		return
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Fatal("the keeper does not end", err)
		}
		return
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond) // another process has no event
	defer tick.Stop()
	late := time.After(60 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("still not so: %s", what)
		}
	}
}

// machine makes the machine of a session, active.
func machine(t *testing.T, s *Session) sandbox.InstanceID {
	t.Helper()
	h, err := s.Client.Provision(t.Context(), request(s.Record))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	return h.Value.InstanceID
}

// execute runs a shell line in a session that is opened for it.
func execute(t *testing.T, dir, id, script string) string {
	t.Helper()
	s, err := Open(t.Context(), dir, id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := run(t.Context(), s, script)
	if err != nil {
		t.Fatalf("%q: %v", script, err)
	}
	return got
}

func run(ctx context.Context, s *Session, script string) (string, error) {
	out, err := s.Client.Execute(ctx, s.Record.Instance.InstanceID, sandbox.Command{
		Executable: "sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{},
		TimeoutSeconds: 60, OutputLimitBytes: 1 << 20,
	})
	return string(out.Stdout), err
}

// stateDir is a state directory whose name is longer than a socket's address.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30))
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(sessionsDir(dir), "*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	return dir
}

// manual is a clock for both sides: it stands still until it is moved.
type manual struct{ *memory.Manual }

func (m manual) NewTimer(d time.Duration) (<-chan time.Time, func() bool) {
	return m.After(d), func() bool { return true }
}

// inProcess runs a keeper in this process, on a clock of the test's.
type inProcess struct {
	*testing.T
	dir      string
	clock    manual
	provider *memory.Provider
	cord     *cord
	session  *Session
	done     chan error
}

func runInProcess(t *testing.T) *inProcess {
	t.Helper()
	begun := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &inProcess{T: t, dir: stateDir(t), clock: manual{memory.NewManual(begun)}, done: make(chan error, 1)}
	p.provider = memory.New(memory.Options{Clock: p.clock.Manual})
	ours, theirs, err := cordPair()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newCord(theirs)
	if err != nil {
		t.Fatal(err)
	}
	p.cord = ours
	in := Inputs{Dir: p.dir, SessionID: "s", Provider: "memory", LeaseID: "lease", ExpiresAt: sandbox.At(begun.Add(time.Hour))}
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	var failed error
	wait := func() error { once.Do(func() { failed = <-p.done }); return failed }
	go func() {
		k := &keeper{in: in, cord: other, clock: p.clock}
		p.done <- k.run(ctx, func(context.Context, Inputs) (*Opened, error) {
			return &Opened{Provider: p.provider, Close: func() error { return nil }}, nil
		})
		other.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if err := wait(); err != nil {
			t.Error(err)
		}
		ours.Close()
		if left := p.provider.Census(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	if m, err := ours.hear(t.Context()); err != nil || m.Word != ready {
		t.Fatal(m, err)
	}
	r, err := placeOf(p.dir, "s").record()
	if err == nil {
		p.session, err = call(t.Context(), p.dir, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.session.Close() })
	id := machine(t, p.session)
	p.session.Record.Instance = &sandbox.Instance{InstanceID: id}
	return p
}

// ends waits for the end of the keeper. Time goes on meanwhile, for as long as it
// takes a keeper to look twice: one that read the clock just before it was moved
// asks for a timer just after.
func (p *inProcess) ends() {
	p.Helper()
	went := time.Duration(0)
	eventually(p.T, "the keeper ends", func() bool {
		select {
		case err := <-p.done:
			p.done <- err
			if err != nil {
				p.Error(err)
			}
			return true
		default:
		}
		if went < 2*lookAgain {
			went += time.Second
			p.clock.Advance(time.Second)
		}
		return false
	})
	if left := p.provider.Census(); len(left) > 0 {
		p.Errorf("left: %q", left)
	}
	if _, err := os.Lstat(placeOf(p.dir, "s").dir); !errors.Is(err, os.ErrNotExist) {
		p.Errorf("the record stays: %v", err)
	}
}

// badKeeper is a keeper that does not do what one does.
func badKeeper(how string) int {
	switch how {
	case "dies":
		return 3
	case "hangs":
		_, _ = io.Copy(io.Discard, os.NewFile(cordFD, "cord"))
		select {}
	case "babbles":
		f := os.NewFile(cordFD, "cord")
		_, _ = f.WriteString("{\"word\":\"ready\",\"word\":\"ready\"}\n")
		_, _ = io.Copy(io.Discard, f)
	case "dies-later":
		c, _ := heldCord()
		_, _ = c.hear(context.Background())
		return 3
	case "dies-ready", "fails-ready":
		c, _ := heldCord()
		m, err := c.hear(context.Background())
		if err != nil {
			return 4
		}
		k := &keeper{in: *m.Inputs, cord: c, clock: manual{memory.NewManual(time.Now())}}
		if _, err := k.claim(context.Background()); err != nil {
			return 4
		}
		l, _, err := k.listen(context.Background())
		if err := errors.Join(err, k.at.replace(tokenName, []byte(newToken()+"\n")), c.say(said{Word: ready})); err != nil {
			return 4
		}
		if how == "fails-ready" {
			_, _ = l.Accept() // it is being called, and does not answer
			c.fail(errors.Join(errors.New("not today"), os.RemoveAll(k.at.dir)))
			_, _ = io.Copy(io.Discard, c)
		}
		return 3
	case "deaf":
		signal.Ignore(unix.SIGTERM)
		pid := int64(os.Getpid())
		began, err := startTime(pid)
		if err == nil {
			_, _, err = claim(os.Args[3], Record{Schema: RecordSchema, SessionID: "itself", State: StateStarting, PID: pid, StartTime: began, CreatedAt: inAnHour(), ExpiresAt: inAnHour()})
		}
		if err != nil {
			return 3
		}
		fmt.Println("deaf")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return 0
}

// unixDialer reaches a unix socket whatever is asked for.
type unixDialer struct{ path string }

func (d *unixDialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", d.path)
}
