package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// liveProvider keeps machines of gVisor with their processes, or the test is skipped by
// name.
func liveProvider(t *testing.T) *Provider {
	t.Helper()
	p := newProvider(t, "runsc")
	p.opt.Durable, p.opt.Live = true, true
	p.openSnapshots()
	if err := p.Durable(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { eventually(t, "no loop device is left", func() bool { return loops(t, p.opt.Dir) == nil }) })
	return p
}

// counting is a program that counts in its memory, and says how far it came.
const counting = `n=0; while :; do n=$((n+1)); echo $n >/tmp/n.new; mv /tmp/n.new /tmp/n; usleep 2000; done`

// detached starts a script that outlives its command, and returns its pid inside.
func detached(t testing.TB, p *Provider, id sandbox.InstanceID, script string) string {
	t.Helper()
	c := shell(script)
	argv := guest.DetachCommand(machine.InitPath, "/tmp/log", append([]string{c.Executable}, c.Arguments...))
	c.Executable, c.Arguments = argv[0], argv[1:]
	s, err := p.Execute(t.Context(), id, c)
	if err != nil {
		t.Fatal(err)
	}
	mustExit(t, s, 0)
	return strings.TrimSpace(string(s.Stdout))
}

// count is how far the program is that counts: 0 where there is none.
func count(t testing.TB, p *Provider, id sandbox.InstanceID) int {
	t.Helper()
	n, _ := strconv.Atoi(strings.TrimSpace(string(sh(t, p, id, "cat /tmp/n 2>/dev/null").Stdout)))
	return n
}

// counts waits until it has come further, and returns how far.
func counts(t testing.TB, p *Provider, id sandbox.InstanceID, than int) (n int) {
	t.Helper()
	eventually(t, "it counts on", func() bool { n = count(t, p, id); return n > than })
	return n
}

func activeDurable(t testing.TB, p *Provider, r sandbox.ProvisionRequest) sandbox.InstanceID {
	t.Helper()
	id := provision(t, p, r)
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// pausedLive releases an instance with its processes.
func pausedLive(t testing.TB, p *Provider, id sandbox.InstanceID) sandbox.Snapshot {
	t.Helper()
	h, err := p.ReleaseLive(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return *h.Value.Snapshot
}

// TestLive_GoesOn: what was paused in the middle of its work goes on, as often as one
// likes, each time for itself, and may be paused so again.
func TestLive_GoesOn(t *testing.T) {
	p := liveProvider(t)
	r := retained(p, work)
	id := activeDurable(t, p, r)
	pid := detached(t, p, id, "cd /workspace/repo; exec 9>>held; "+counting+"; ")
	mustExit(t, sh(t, p, id, "echo file >/workspace/repo/file; echo kept >/tmp/kept"), 0)
	before := counts(t, p, id, 20)
	ref := pausedLive(t, p, id)
	kept, err := p.Snapshots(t.Context())
	if err != nil || len(kept) != 1 || !kept[0].Live || kept[0].Bytes == 0 {
		t.Errorf("%+v, %v", kept, err)
	}
	forks := []sandbox.Snapshot{ref}
	for i := range 2 {
		h, err := p.CloneSnapshot(t.Context(), sandbox.CloneRequest{Snapshot: ref, TargetSessionID: fmt.Sprint("fork", i)})
		if err != nil {
			t.Fatal(err)
		}
		forks = append(forks, h.Value)
	}
	var ids []sandbox.InstanceID
	for i, f := range forks {
		one := resumed(t, p, r, f)
		ids = append(ids, one)
		if n := counts(t, p, one, before); n > before+100_000 {
			t.Errorf("fork %d: %d after %d", i, n, before)
		}
		got := sh(t, p, one, "cat /workspace/repo/file /tmp/kept /workspace/.checkfu/generation; ls /proc/"+pid+"/fd/9 >/dev/null && echo held").Stdout
		if want := "file\nkept\n" + string(one) + "\nheld\n"; string(got) != want {
			t.Errorf("fork %d: got %q, want %q", i, got, want)
		}
		mustExit(t, sh(t, p, one, "echo "+fmt.Sprint(i)+" >/workspace/repo/own"), 0)
	}
	for i, one := range ids {
		if got := sh(t, p, one, "cat /workspace/repo/own").Stdout; string(got) != fmt.Sprintln(i) {
			t.Errorf("fork %d sees %q", i, got)
		}
		mustExit(t, sh(t, p, one, "kill "+pid), 0) // its own alone
		if i == 0 {
			counts(t, p, ids[1], 0)
		}
	}
	// Once more, from one that was resumed.
	detached(t, p, ids[1], "mv /tmp/n /tmp/old; "+counting)
	before = counts(t, p, ids[1], 20)
	again := pausedLive(t, p, ids[1])
	r.SessionID = again.SessionID
	counts(t, p, resumed(t, p, r, again), before)
	// Files alone, for who wants no more, or knows no more.
	for _, alone := range []struct {
		name string
		set  func(on bool)
	}{{"cold", func(on bool) { p.opt.Cold = on }}, {"not live", func(on bool) { p.opt.Live = !on }}} {
		alone.set(true)
		one := resumed(t, p, r, again)
		if got := sh(t, p, one, "cat /workspace/repo/own; ls /tmp").Stdout; string(got) != "1\n" {
			t.Errorf("%s: %q", alone.name, got)
		}
		alone.set(false)
	}
	for _, f := range append(forks, again) {
		if err := p.DestroySnapshot(t.Context(), f.SnapshotID); err != nil {
			t.Error(err)
		}
	}
	noneIsKept(t, p)
}

func reason(err error) string {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok {
		return fmt.Sprintf("%T", err)
	}
	return e.Reason
}

// TestLive_RefusedIsUnharmed: what cannot be written down is a refusal that names it,
// after which everything goes on, and nothing was kept.
func TestLive_RefusedIsUnharmed(t *testing.T) {
	p := liveProvider(t)
	id := activeDurable(t, p, retained(p, work))
	detached(t, p, id, counting)
	release := func(p *Provider, id sandbox.InstanceID) string {
		_, err := p.ReleaseLive(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
		return reason(err)
	}
	proc := open(t, p, id, "while read line; do echo $line; done")
	say := func(word string) {
		if _, err := proc.Input().Write([]byte(word + "\n")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		if n, err := proc.Output().Read(b); err != nil || string(b[:n]) != word+"\n" {
			t.Errorf("%q, %v", b[:n], err)
		}
	}
	say("before")
	before := counts(t, p, id, 20)
	if got := release(p, id); got != ReasonLive+string(machine.CauseCommand) {
		t.Errorf("beside a live process: %s", got)
	}
	say("after")
	counts(t, p, id, before)
	if in, err := p.find(sandbox.OpExecute, id); err != nil || in.currentState() != sandbox.StateActive {
		t.Errorf("%v", err)
	} else if left, err := filepath.Glob(filepath.Join(in.at.machine(), "checkpoint*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	noneIsKept(t, p)
	if err := proc.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A connection of a forward is a command of the host's too.
	detached(t, p, id, "nc -ll -p 7777 -e cat")
	eventually(t, "somebody listens", func() bool { return len(sh(t, p, id, "grep -h :1E61 /proc/net/tcp /proc/net/tcp6").Stdout) > 0 })
	tunnel, err := p.Tunnel(t.Context(), id, 7777)
	if err != nil {
		t.Fatal(err)
	}
	if got := release(p, id); got != ReasonLive+string(machine.CauseCommand) {
		t.Errorf("beside a tunnel: %s", got)
	}
	if err := tunnel.Close(); err != nil {
		t.Error(err)
	}
	counts(t, p, id, before)
	ref := pausedLive(t, p, id)
	if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
		t.Error(err)
	}

	zdr := provision(t, p, request(p, work))
	if _, err := p.Activate(t.Context(), zdr); err != nil {
		t.Fatal(err)
	}
	if got := release(p, zdr); got != ReasonLive+string(machine.CauseNotLive) {
		t.Errorf("zero retention: %s", got)
	}
	mustExit(t, sh(t, p, zdr, "! ls /workspace/.checkfu/generation 2>/dev/null"), 0)
	other := newProvider(t, "runc")
	other.opt.Durable, other.opt.Live = true, true
	other.openSnapshots()
	one := activeDurable(t, other, retained(other, work))
	if got := release(other, one); got != ReasonLive+string(machine.CauseNotLive) {
		t.Errorf("runc: %s", got)
	}
	mustExit(t, sh(t, other, one, "true"), 0)
}

// elsewhere is the driver on another processor.
type elsewhere struct{ machine.Driver }

func (e elsewhere) Identity() (machine.Identity, error) {
	id, err := e.Driver.(machine.Restorer).Identity()
	id.CPU = "another"
	return id, err
}

func (e elsewhere) Restore(context.Context, machine.Spec, string) (machine.Machine, error) {
	return nil, errors.New("it was asked to restore what is not its own")
}

// TestLive_NothingElseIsRestored: neither what was damaged nor what another build or
// processor wrote; its files can be had all the same.
func TestLive_NothingElseIsRestored(t *testing.T) {
	p := liveProvider(t)
	r := retained(p, work)
	id := activeDurable(t, p, r)
	detached(t, p, id, counting)
	mustExit(t, sh(t, p, id, "echo file >/workspace/repo/file"), 0)
	ref := pausedLive(t, p, id)
	refuse := func(what, want string) {
		t.Helper()
		_, err := p.Resume(t.Context(), sandbox.ResumeRequest{Request: r, Snapshot: ref})
		if reason(err) != want {
			t.Errorf("%s: %s (%v)", what, reason(err), err)
		}
		t.Log(err)
		if left := census(t, p); len(left) > 0 {
			t.Errorf("%s: left:\n%s", what, strings.Join(left, "\n"))
		}
	}
	own := p.opt.Driver
	p.opt.Driver = elsewhere{own}
	refuse("another processor", ReasonLiveElsewhere)
	p.opt.Driver = own
	pages := filepath.Join(p.opt.Dir, "snapshots", "snapshots", string(ref.SnapshotID), "live", "pages.img")
	f, err := os.OpenFile(pages, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	var b [1]byte
	at := info.Size() / 2
	_, err = f.ReadAt(b[:], at)
	b[0]++
	_, werr := f.WriteAt(b[:], at)
	if err := errors.Join(err, werr, f.Close()); err != nil {
		t.Fatal(err)
	}
	refuse("one changed bit", "snapshot_damaged")
	p.opt.Cold = true
	mustExit(t, sh(t, p, resumed(t, p, r, ref), "[ $(cat /workspace/repo/file) = file ]"), 0)
	if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
		t.Error(err)
	}
}

// TestLive_AttacksFail: what a machine that was started holds back, one that goes on
// holds back too. The read-back of every axis is part of each resumption.
func TestLive_AttacksFail(t *testing.T) {
	p := liveProvider(t)
	r := retained(p, work, data)
	id := provision(t, p, r)
	if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/data/in/file", Content: []byte("sealed")}); err != nil {
		t.Fatal(err)
	}
	plant(t, p, id)
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	detached(t, p, id, counting)
	mustExit(t, sh(t, p, id, "echo x > /tmp/f"), 0)
	ref := pausedLive(t, p, id)
	one := sandbox.InstanceID("")
	for _, a := range attacks {
		if a.drivers != nil && a.drivers[0] != "runsc" || a.name == "use up the inodes" { // seconds, of the same image
			continue
		}
		if one == "" {
			one = resumed(t, p, r, ref)
			counts(t, p, one, 0)
		}
		t.Run(a.name, func(t *testing.T) {
			if a.prepare != nil {
				a.prepare(t, nil)
			}
			s, err := p.Execute(t.Context(), one, shell(a.script))
			switch {
			case errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInstanceLost}):
				if err := p.Destroy(t.Context(), one); err != nil { // the limit ended it, and the attack with it
					t.Error(err)
				}
				one = ""
			case err != nil:
				t.Error(err)
			case s.Exit.ExitCode != nil && *s.Exit.ExitCode == 0:
				t.Errorf("it succeeded: %s%s", s.Stdout, s.Stderr)
			}
		})
	}
	if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
		t.Error(err)
	}
}

// TestLive_TheOneWayOut: a machine of an allowlist that goes on finds the guard that it
// has now, and no more than that.
func TestLive_TheOneWayOut(t *testing.T) {
	p := guarded(liveProvider(t), "plain")
	r := retained(p)
	r.Profile.NetworkPolicy = allowing(p, listed).Profile.NetworkPolicy
	id := activeDurable(t, p, r)
	detached(t, p, id, counting)
	asks := func(id sandbox.InstanceID) {
		t.Helper()
		for target, want := range map[string]string{"allowed.test:443": "200 OK\r\n\r\nthrough", "other.test:443": "403 Forbidden"} {
			if s := sh(t, p, id, ask(target)); !strings.Contains(string(s.Stdout), want) {
				t.Errorf("%s: %q", target, s.Stdout)
			}
		}
	}
	asks(id)
	detached(t, p, id, "sleep 1000 | nc 127.0.0.1 3128") // held open across the pause
	before := counts(t, p, id, 20)
	ref := pausedLive(t, p, id)
	one := resumed(t, p, r, ref)
	counts(t, p, one, before)
	asks(one)
	if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
		t.Error(err)
	}
}
