package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

func TestADeadKeeperIsSaidToBeDeadAndRemoved(t *testing.T) {
	dir := stateDir(t)
	r := start(t, dir, "s")
	live := start(t, dir, "live")
	if err := r.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, r)
	list, err := List(dir)
	if err != nil || len(list) != 2 || list[0].SessionID != "live" || !list[0].Keeping() || list[0].State != StateActive || list[1].State != StateLost || list[1].PID != r.PID {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := Open(t.Context(), dir, "s"); !Dead.Is(err) {
		t.Error(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir, SessionID: "s", Provider: "memory", ExpiresAt: inAnHour()}); !Exists.Is(err) {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := Sweep(t.Context(), dir, Ending{Reclaim: func(context.Context, Listed) error { return broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
	var asked []string
	ids, err := Sweep(t.Context(), dir, Ending{Reclaim: func(_ context.Context, l Listed) error {
		asked = append(asked, l.SessionID+" "+string(l.Instance.InstanceID))
		return nil
	}})
	if err != nil || !slices.Equal(ids, []string{"s"}) || !slices.Equal(asked, []string{"s " + string(r.Instance.InstanceID)}) {
		t.Error(ids, asked, err)
	}
	if err := End(t.Context(), dir, "s", Ending{}); !NotFound.Is(err) {
		t.Error(err)
	}
	if got := execute(t, dir, live.SessionID, "echo lives"); got != "lives\n" {
		t.Errorf("%q", got)
	}
}

// What a record names may be another process by now.
func TestAProcessIdThatIsUsedAgainFoolsNobody(t *testing.T) {
	dir := stateDir(t)
	r := start(t, dir, "s")
	if err := r.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, r)
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	r.PID = int64(victim.Process.Pid)
	if err := placeOf(dir, "s").write(r); err != nil {
		t.Fatal(err)
	}
	if list, err := List(dir); err != nil || len(list) != 1 || list[0].Keeping() {
		t.Errorf("%+v, %v", list, err)
	}
	if err := r.signal(unix.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Error("it was taken for the keeper", err)
	}
	if err := End(t.Context(), dir, "s", Ending{}); err != nil {
		t.Error(err)
	}
	if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", victim.Process.Pid)); !strings.Contains(string(state), ") S ") {
		t.Error("an innocent process was killed")
	}
}

func TestAKeeperThatDoesNotEndIsKilled(t *testing.T) {
	dir := stateDir(t)
	r := start(t, dir, "s")
	// Stopped, it hears of SIGTERM only once it goes on again, which End sees to.
	if err := r.signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := End(t.Context(), dir, "s", Ending{}); err != nil {
		t.Error(err)
	}
	// One that is deaf to it: its lock is held by a process that ignores SIGTERM.
	r = start(t, dir, "deaf")
	if err := r.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, r)
	deaf := exec.Command("flock", placeOf(dir, "deaf").file(lockName), "sh", "-c", "trap '' TERM; echo deaf; sleep 1000 & wait; wait; wait")
	deaf.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := deaf.StdoutPipe()
	if err == nil {
		err = deaf.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-deaf.Process.Pid, syscall.SIGKILL); _ = deaf.Wait() }()
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := End(t.Context(), dir, "deaf", Ending{Patience: 10 * time.Millisecond}); !Unremovable.Is(err) || !errors.Is(err, errOwned) {
		t.Error("whoever is not the keeper was killed", err)
	}
	// A keeper that is deaf itself.
	kept := exec.Command("/proc/self/exe")
	kept.Args = []string{"bad", Argument, "deaf", dir}
	alive, err := kept.StdinPipe() // it ends with this process at the latest
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	out, err = kept.StdoutPipe()
	if err == nil {
		err = kept.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Process.Kill(); _ = kept.Wait() }()
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := End(t.Context(), dir, "itself", Ending{Patience: 10 * time.Millisecond}); err != nil {
		t.Error(err)
	}
	alive.Close()
	_ = kept.Wait()
	if s, ok := kept.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		t.Error("it ended by itself:", kept.ProcessState)
	}
}

// A keeper of another version writes other records. It lives: it is shown, never
// buried, and who wants it removed hears why that cannot be.
func TestAKeeperWhoseRecordCannotBeReadIsNotHidden(t *testing.T) {
	dir := stateDir(t)
	r := start(t, dir, "s")
	at := placeOf(dir, "s")
	session, err := Open(t.Context(), dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	known, err := at.read(recordName)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.replace(recordName, append([]byte(`{"a_new_field":1,`), known[1:]...)); err != nil {
		t.Fatal(err)
	}
	list, err := List(dir)
	if err != nil || len(list) != 1 || list[0].SessionID != "s" || list[0].State != StateDamaged || !list[0].Keeping() || list[0].Damaged == nil {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := Open(t.Context(), dir, "s"); !Damaged.Is(err) || !strings.Contains(err.Error(), "a_new_field") {
		t.Error(err)
	}
	if ids, err := Sweep(t.Context(), dir, Ending{}); len(ids) > 0 || err != nil {
		t.Error(ids, err)
	}
	if err := End(t.Context(), dir, "s", Ending{Patience: 10 * time.Millisecond}); !Unremovable.Is(err) || !strings.Contains(err.Error(), "a_new_field") {
		t.Error(err)
	}
	if got, err := run(t.Context(), session, "echo lives"); err != nil || got != "lives\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := at.write(r); err != nil {
		t.Fatal(err)
	}
}

func TestAKeeperThatCannotBeginSaysWhy(t *testing.T) {
	dir := stateDir(t)
	for name, c := range map[string]struct {
		options Options
		kind    Kind
		text    string
	}{
		"no provider": {Options{Provider: "nonsense"}, Refused, "there is no nonsense here"},
		"dies":        {Options{Provider: "memory", command: []string{"/proc/self/exe", "bad", Argument, "dies"}}, Silent, ""},
		"dies ready":  {Options{Provider: "memory", command: []string{"/proc/self/exe", "bad", Argument, "dies-ready"}, Patience: time.Hour}, Silent, "without a word"},
		"fails ready": {Options{Provider: "memory", command: []string{"/proc/self/exe", "bad", Argument, "fails-ready"}, Patience: time.Hour}, Refused, "not today"},
		"dies later":  {Options{Provider: "memory", command: []string{"/proc/self/exe", "bad", Argument, "dies-later"}}, Silent, "without a word"},
		"hangs":       {Options{Provider: "memory", Patience: 100 * time.Millisecond, command: []string{"/proc/self/exe", "bad", Argument, "hangs"}}, Silent, "not within 100ms"},
		"babbles":     {Options{Provider: "memory", command: []string{"/proc/self/exe", "bad", Argument, "babbles"}}, Silent, "duplicate_key"},
		"no program":  {Options{Provider: "memory", command: []string{"/nowhere", "x"}}, Refused, "no such file"},
	} {
		c.options.Dir, c.options.ExpiresAt, c.options.SessionID = dir, inAnHour(), "s"
		_, err := Start(t.Context(), c.options)
		if !c.kind.Is(err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"../s", "a/b", ".new-1", "-a", strings.Repeat("a", 41), "a b", "ä"} {
		_, err := Start(t.Context(), Options{Dir: dir, SessionID: id, Provider: "memory", ExpiresAt: inAnHour()})
		_, openErr := Open(t.Context(), dir, id)
		for _, err := range []error{err, openErr, End(t.Context(), dir, id, Ending{})} {
			if e, ok := errors.AsType[*sandbox.Invalid](err); !ok || e.Field != "session_id" {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{Dir: dir, Provider: "memory", ExpiresAt: inAnHour()}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWhatTheProviderSaysReachesTheStarter(t *testing.T) {
	s := starting(t, stateDir(t), "s")
	q := request(s.Record)
	q.Profile.BaseImage, q.RootImage = "nonsense", "nonsense"
	if _, err := s.Client.Provision(t.Context(), q); err == nil {
		t.Fatal("it was taken")
	}
	if err := s.Abandon(t.Context()); !Refused.Is(err) || !strings.Contains(err.Error(), "image") {
		t.Error(err)
	}
}

func TestAKeeperIsNotRunByHand(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", Argument)
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Error(err)
	}
	if err := Main(t.Context(), openMemory); !ByHand.Is(err) {
		t.Error(err)
	}
}
