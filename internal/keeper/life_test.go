package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// starterDir makes the test binary a starter that makes one session and waits to
// be killed.
const starterDir = "CHECKFU_TEST_STARTER"

func starterOfOne() int {
	dir, keeps := strings.CutPrefix(os.Getenv(starterDir), "keep:")
	s, err := Start(context.Background(), Options{Dir: dir, SessionID: "s", Provider: "memory", ExpiresAt: inAnHour()})
	if err == nil {
		var h sandbox.Handoff[sandbox.Instance]
		if h, err = s.Client.Provision(context.Background(), request(s.Record)); err == nil {
			_, err = s.Client.Activate(context.Background(), h.Value.InstanceID)
		}
	}
	if err == nil && keeps {
		err = s.Keep(context.Background())
	}
	fmt.Println("made", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// starter is one in a process of its own, that has made its session.
func starter(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), starterDir+"="+dir, "SECRET=of-the-starter")
	_, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	// What a shell leaves open for everybody must not live on in a keeper.
	leaked, leakErr := os.Open(dir[strings.IndexByte(dir, '/'):])
	if err := errors.Join(err, outErr, leakErr); err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	cmd.ExtraFiles = []*os.File{leaked, leaked}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := make([]byte, len("made <nil>\n"))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "made <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

func TestASessionOutlivesItsStarter(t *testing.T) {
	dir := stateDir(t)
	cmd := starter(t, "keep:"+dir)
	t.Cleanup(func() { end(t, dir, "s") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// Two commands, one after the other, in one machine.
	if got := execute(t, dir, "s", "echo one > /tmp/f; cat /tmp/f"); got != "one\n" {
		t.Errorf("%q", got)
	}
	if got := execute(t, dir, "s", "echo two >> /tmp/f; cat /tmp/f"); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	r, err := placeOf(dir, "s").record()
	if err != nil {
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d/", r.PID)
	environ, _ := os.ReadFile(proc + "environ")
	cmdline, _ := os.ReadFile(proc + "cmdline")
	token, _ := placeOf(dir, "s").read(tokenName)
	if cwd, _ := os.Readlink(proc + "cwd"); cwd != "/" {
		t.Errorf("its directory is %s", cwd)
	}
	if strings.Contains(string(environ), "SECRET") || strings.Contains(string(environ)+string(cmdline), strings.TrimSpace(string(token))) || len(token) < 40 {
		t.Errorf("environment %q, arguments %q", environ, cmdline)
	}
	fds, _ := os.ReadDir(proc + "fd")
	for _, fd := range fds {
		to, _ := os.Readlink(proc + "fd/" + fd.Name())
		if n := fd.Name(); len(n) == 1 && n < "3" && to != os.DevNull || to == dir {
			t.Errorf("descriptor %s is %s", n, to)
		}
	}
	if sid, err := unix.Getsid(int(r.PID)); err != nil || sid != int(r.PID) {
		t.Errorf("its session is %d, %v", sid, err)
	}
}

func TestASessionThatNobodyKeptEndsWithItsStarter(t *testing.T) {
	dir := stateDir(t)
	cmd := starter(t, dir)
	r, err := placeOf(dir, "s").record()
	if err != nil {
		t.Fatal(err)
	}
	if r.Instance == nil || r.State != StateStarting {
		t.Errorf("%+v", r)
	}
	if _, err := Open(t.Context(), dir, "s"); !Unready.Is(err) {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended(t, r)
	end(t, dir, "s")
}

func TestKeepNeedsAMachineThatRuns(t *testing.T) {
	dir := stateDir(t)
	s := starting(t, dir, "s")
	if err := s.Keep(t.Context()); !Refused.Is(err) {
		t.Error(err)
	}
	machine(t, s.Session)
	if err := s.Keep(t.Context()); err != nil || s.Record.State != StateActive || s.Record.Instance == nil {
		t.Error(err, s.Record)
	}
	s.Close()
}

func TestAnIdIsTakenOnce(t *testing.T) {
	dir := stateDir(t)
	start(t, dir, "s")
	_, err := Start(t.Context(), Options{Dir: dir, SessionID: "s", Provider: "memory", ExpiresAt: inAnHour()})
	if !Exists.Is(err) {
		t.Error(err)
	}
	// Of many at once one gets it.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var made []*Starting
	for range 8 {
		wg.Go(func() {
			s, err := Start(t.Context(), Options{Dir: dir, SessionID: "race", Provider: "memory", ExpiresAt: inAnHour()})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made = append(made, s)
			} else if !Exists.Is(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(made) != 1 {
		t.Fatalf("%d got it", len(made))
	}
	if err := made[0].Abandon(t.Context()); err != nil {
		t.Error(err)
	}
	if got := execute(t, dir, "s", "echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
}

func TestASessionHasOneMachineOnItsOwnTerms(t *testing.T) {
	p := runInProcess(t)
	for name, change := range map[string]func(*sandbox.ProvisionRequest){
		"a second one":     func(*sandbox.ProvisionRequest) {},
		"another session":  func(q *sandbox.ProvisionRequest) { q.SessionID = "other" },
		"another lease":    func(q *sandbox.ProvisionRequest) { q.LeaseID = "other" },
		"a later deadline": func(q *sandbox.ProvisionRequest) { q.ExpiresAt = sandbox.At(p.clock.Now().Add(2 * time.Hour)) },
	} {
		q := request(p.session.Record)
		change(&q)
		_, err := p.session.Client.Provision(t.Context(), q)
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.LifecycleConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := p.provider.Census(); len(left) != 1 {
		t.Errorf("%q", left)
	}
}

func TestASessionEndsAtItsExpiryAndNotBefore(t *testing.T) {
	p := runInProcess(t)
	p.clock.Advance(time.Hour - time.Millisecond)
	if got, err := run(t.Context(), p.session, "echo still"); err != nil || got != "still\n" {
		t.Errorf("%q, %v", got, err)
	}
	select {
	case err := <-p.done:
		p.done <- err
		t.Error("it ended early", err)
	default:
	}
	p.clock.Advance(time.Millisecond)
	p.ends()
}

func TestASessionEndsWithItsMachine(t *testing.T) {
	for name, end := range map[string]func(*inProcess) error{
		"destroy": func(p *inProcess) error {
			return p.session.Client.Destroy(p.Context(), p.session.Record.Instance.InstanceID)
		},
		"release": func(p *inProcess) error {
			_, err := p.session.Client.Release(p.Context(), p.session.Record.Instance.InstanceID, sandbox.ReleaseRequest{})
			return err
		},
		"cleanup": func(p *inProcess) error {
			const late sandbox.Timestamp = "9999-01-01T00:00:00.000Z"
			_, err := p.session.Client.Cleanup(p.Context(), sandbox.CleanupRequest{Now: late, OrphanedBefore: late})
			return err
		},
		"its directory is taken away": func(p *inProcess) error {
			err := os.RemoveAll(sessionsDir(p.dir))
			p.clock.Advance(lookAgain)
			return err
		},
		"the cord": func(p *inProcess) error { return p.cord.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := runInProcess(t)
			if err := end(p); err != nil {
				t.Error(err)
			}
			p.ends()
		})
	}
}

// A command that waits for ever keeps nobody from ending the session.
func TestWorkUnderWayEndsWithTheSession(t *testing.T) {
	p := runInProcess(t)
	process, err := p.session.Client.OpenProcess(t.Context(), p.session.Record.Instance.InstanceID, processID, sleeper)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.clock.Advance(time.Hour)
	p.ends()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	p.session.Client.Close()
	if _, err := process.Wait(t.Context()); err != nil {
		t.Log("the process:", err)
	}
}

const processID = "pr_00000000000000000000000000000001"

var sleeper = sandbox.ProcessRequest{Executable: "sh", Arguments: []string{"-c", "echo begun; sleep 100000"}, WorkingDirectory: "/", Environment: map[string]string{}}

// A caller that was killed leaves a process that nobody follows. It ends by
// itself, so that the next command finds its place.
func TestAProcessThatNobodyFollowsEnds(t *testing.T) {
	p := runInProcess(t)
	r := p.session.Record
	token, _ := placeOf(p.dir, "s").read(tokenName)
	held, path, err := placeOf(p.dir, "s").socket()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	caller, err := client.Dial(t.Context(), client.Options{Base: "unix:" + path, Token: strings.TrimSpace(string(token)), Lease: wire.Lease{ID: r.LeaseID, Epoch: 1}})
	if err != nil {
		t.Fatal(err)
	}
	process, err := caller.OpenProcess(t.Context(), r.Instance.InstanceID, processID, sleeper)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(process.Output(), make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	other := "pr_00000000000000000000000000000002"
	open := func() (sandbox.Process, error) {
		return p.session.Client.OpenProcess(t.Context(), r.Instance.InstanceID, other, sleeper)
	}
	p.clock.Advance(10 * patience) // it is followed: it stays
	if _, err := open(); !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: sandbox.ActualProcessAlreadyOpen}) {
		t.Error(err)
	}
	caller.Close() // without a word about its process, as one that was killed
	eventually(t, "the next command has its place", func() bool {
		p.clock.Advance(patience) // the keeper learns of the end of the stream in its own time
		next, err := open()
		if err == nil {
			err = next.Destroy(t.Context())
			if err != nil {
				t.Error(err)
			}
			return true
		}
		return false
	})
}

func TestTwentySessionsAtOnce(t *testing.T) {
	dir := stateDir(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id := fmt.Sprintf("s%02d", i)
			s, err := Start(t.Context(), Options{Dir: dir, SessionID: id, Provider: "memory", ExpiresAt: inAnHour()})
			if err != nil {
				t.Error(err)
				return
			}
			h, err := s.Client.Provision(t.Context(), request(s.Record))
			if err == nil {
				_, err = s.Client.Activate(t.Context(), h.Value.InstanceID)
			}
			if err == nil {
				err = s.Keep(t.Context())
			}
			var got string
			if err == nil {
				got, err = run(t.Context(), s.Session, "echo "+id+" > /tmp/f; cat /tmp/f")
			}
			if err := errors.Join(err, s.Close()); err != nil || got != id+"\n" {
				t.Errorf("%s: %q, %v", id, got, err)
			}
		})
	}
	wg.Wait()
	list, err := List(dir)
	if err != nil || len(list) != 20 {
		t.Errorf("%d, %v", len(list), err)
	}
	for _, l := range list {
		wg.Go(func() { end(t, dir, l.SessionID) })
	}
	wg.Wait()
}
