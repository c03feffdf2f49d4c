package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// snapshots are the ids of those on the disk, of all providers.
func snapshots() []string {
	found, _ := filepath.Glob(filepath.Join(state, "native-*", "snapshots", "snapshots", "*"))
	return found
}

// keepable skips where nothing can be kept.
func keepable(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(run(t, "doctor").stdout) {
		if strings.Contains(line, "snapshots of durable machines: cannot be had here") {
			t.Skip(strings.TrimSpace(line))
		}
	}
}

// nothingKept holds the end of a test to it.
func nothingKept(t *testing.T) {
	t.Helper()
	nothingLeft(t)
	if found := snapshots(); len(found) > 0 {
		t.Errorf("snapshots are left: %q", found)
	}
}

// remove ends sessions, whatever they are.
func remove(t *testing.T, ids ...string) {
	t.Helper()
	mustRun(t, append([]string{"session", "rm"}, ids...)...)
}

func pause(t *testing.T, id string) {
	t.Helper()
	if r := mustRun(t, "session", "pause", id, "--quiet"); r.stdout != id+"\n" || r.stderr != "" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
}

func resume(t *testing.T, ids ...string) {
	t.Helper()
	if r := mustRun(t, append([]string{"session", "resume", "--quiet"}, ids...)...); r.stdout != strings.Join(ids, "\n")+"\n" || r.stderr != "" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
}

// is holds the state of a session to what it should be.
func is(t *testing.T, id, want string) keeping {
	t.Helper()
	s := sessions(t)[id]
	if s.State != want {
		t.Fatalf("%s: expected %s, got %+v", id, want, s)
	}
	if s.InstanceID != "" {
		machines = append(machines, s.InstanceID)
	}
	return s
}

// A session goes through everything that it can: what is in it is what was written
// in it, whoever ended its machine and however.
func TestASessionIsPausedResumedAndForked(t *testing.T) {
	keepable(t)
	repo := repository(t, map[string]string{"a.txt": "from the repository\n"})
	for _, provider := range providers {
		id := name(t, provider, 400)
		mustRun(t, "session", "start", repo, "--id", id, "--image", "busybox", "--provider", provider, "--memory", "256MiB", "--disk", "64MiB", "--keep=48h", "--quiet")
		t.Cleanup(func() { run(t, "session", "rm", id) })
		active := is(t, id, "active")
		inside(t, id, "echo one > a.txt; echo home > ~/h; ln a.txt b.txt; echo gone > /tmp/t; echo out > /mnt/session/outputs/o")
		pause(t, id)
		if s := is(t, id, "paused"); s.KeeperPID != 0 || s.InstanceID != "" || s.SnapshotID == "" || s.DiskBytes <= 0 || !within(s.ExpiresAt, 47*time.Hour, 48*time.Hour) {
			t.Errorf("%+v", s)
		}
		if now := census(); len(now) > 0 { // no process, mount or machine
			t.Errorf("%s: a paused session has\n%s", provider, strings.Join(now, "\n"))
		}
		mustRun(t, "sweep") // it is somebody's
		for _, args := range [][]string{{"exec", id, "--", "true"}, {"pause", id}} {
			if r := run(t, append([]string{"session"}, args...)...); r.code != 125 || !strings.Contains(r.stderr, "it is paused") {
				t.Errorf("%q: %d, %s", args, r.code, r.stderr)
			}
		}
		fork := strings.TrimSpace(mustRun(t, "session", "fork", id, "--quiet").stdout)
		t.Cleanup(func() { run(t, "session", "rm", fork) })
		resume(t, id, fork)
		if s := is(t, id, "active"); s.InstanceID == active.InstanceID {
			t.Error("the same machine")
		}
		const look = "pwd; cat a.txt ~/h /mnt/session/outputs/o; ls /tmp; stat -c %h b.txt"
		for _, each := range []string{id, fork} {
			if got := inside(t, each, look); got != "/workspace/repo\none\nhome\nout\n2\n" {
				t.Errorf("%s: %q", each, got)
			}
			inside(t, each, "echo "+each+" > a.txt")
		}
		// One that is active is forked as it is, and goes on.
		second := strings.TrimSpace(mustRun(t, "session", "fork", fork, "--quiet").stdout)
		t.Cleanup(func() { run(t, "session", "rm", second) })
		if got := inside(t, fork, "cat a.txt; echo later > a.txt"); got != fork+"\n" {
			t.Errorf("%q", got)
		}
		resume(t, second)
		if got := inside(t, second, "cat a.txt"); got != fork+"\n" {
			t.Errorf("%q", got)
		}

		// A keeper that is terminated keeps what is in it; one that is killed falls back.
		s := is(t, fork, "active")
		if err := syscall.Kill(s.KeeperPID, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is paused", func() bool { return sessions(t)[fork].State == "paused" })
		eventually(t, "it is resumed", func() bool { return run(t, "session", "resume", fork).code == 0 })
		if got := inside(t, fork, "cat a.txt; echo lost > a.txt"); got != "later\n" {
			t.Errorf("%q", got)
		}
		if err := syscall.Kill(is(t, fork, "active").KeeperPID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "ls says lost", func() bool { return sessions(t)[fork].State == "lost" })
		if r := run(t, "session", "exec", fork, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "its keeper is gone") {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		if r := mustRun(t, "session", "resume", fork); !strings.Contains(r.stderr, "its keeper was killed; it is what it was at 20") {
			t.Errorf("%q", r.stderr)
		}
		if got := inside(t, fork, "cat a.txt"); got != "later\n" {
			t.Errorf("%q", got)
		}
		pause(t, fork)
		remove(t, id, second, fork)
		nothingKept(t)
	}
}

// within is whether a time is so far away.
func within(at string, least, most time.Duration) bool {
	when, err := time.Parse(time.RFC3339, at)
	left := time.Until(when)
	return err == nil && left > least && left <= most
}

// An expiry takes nothing away from who was told that it is kept. It is the tenth part
// of its life that a session has to be kept in: ten seconds leave a loaded host one, for
// a small machine.
func TestASessionIsPausedWhereItExpires(t *testing.T) {
	keepable(t)
	id := session(t, providers[1], "--id", name(t, providers[1], 410), "--expires", "20s", "--keep", "--disk", "16MiB")
	is(t, id, "active")
	inside(t, id, "echo kept > n")
	eventually(t, "it is paused", func() bool { return sessions(t)[id].State == "paused" })
	eventually(t, "it is resumed", func() bool { return run(t, "session", "resume", id).code == 0 })
	if got := inside(t, id, "cat n"); got != "kept\n" {
		t.Errorf("%q", got)
	}
	// What is kept expires too, and then a sweep may take it.
	mustRun(t, "session", "pause", id, "--expires", "5s")
	eventually(t, "it is lost", func() bool { return sessions(t)[id].State == "lost" })
	for _, verb := range []string{"resume", "fork"} {
		if r := run(t, "session", verb, id); r.code != 125 || !strings.Contains(r.stderr, "what was kept of it expired at 20") {
			t.Errorf("%s: %d, %s", verb, r.code, r.stderr)
		}
	}
	if r := mustRun(t, "sweep"); !strings.Contains(r.stdout, "removed session "+id) {
		t.Errorf("%q", r.stdout)
	}
	nothingKept(t)
}

func TestARunIsKept(t *testing.T) {
	keepable(t)
	for _, provider := range providers {
		record := filepath.Join(t.TempDir(), "r.json")
		r := run(t, boxed(provider, "echo kept > n; exit 3", "--keep", "--json", record, "--memory", "256MiB", "--disk", "64MiB")...)
		if r.code != 3 {
			t.Fatalf("%d: %s", r.code, r.stderr)
		}
		var doc struct {
			SessionID   string `json:"session_id"`
			Disposition string `json:"disposition"`
		}
		text, err := os.ReadFile(record)
		if err == nil {
			err = json.Unmarshal(text, &doc)
		}
		id := doc.SessionID
		if err != nil || doc.Disposition != "released" || !strings.Contains(r.stderr, "checkfu: kept as session "+id+" until 20") {
			t.Fatalf("%v, %s, %s", err, text, r.stderr)
		}
		is(t, id, "paused")
		mustRun(t, "sweep")
		resume(t, id)
		is(t, id, "active")
		if got := inside(t, id, "cat n"); got != "kept\n" {
			t.Errorf("%q", got)
		}
		remove(t, id)
		// One that never ran leaves nothing.
		if r := run(t, "run", "--image", "busybox", "--provider", provider, "--keep", "--disk", "1KiB", "--", "true"); r.code != 2 {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		nothingKept(t)
	}
}

// Several commands at once on one session: one has it, the others are told.
func TestOneCommandAtATimeHasASession(t *testing.T) {
	keepable(t)
	id := session(t, providers[1], "--id", name(t, providers[1], 420), "--keep")
	is(t, id, "active")
	inside(t, id, "echo kept > n")
	at := func(args ...string) (codes []int, out string) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 3 {
			cmd := command(t, append([]string{"session"}, args...)...)
			wg.Go(func() {
				said, _ := cmd.CombinedOutput()
				mu.Lock()
				defer mu.Unlock()
				codes, out = append(codes, cmd.ProcessState.ExitCode()), out+string(said)
			})
		}
		wg.Wait()
		slices.Sort(codes)
		return codes, out
	}
	for range 2 {
		if codes, out := at("pause", id); !slices.Equal(codes, []int{0, 125, 125}) {
			t.Errorf("pause: %v, %s", codes, out)
		}
		is(t, id, "paused")
		if codes, out := at("resume", id); !slices.Equal(codes, []int{0, 125, 125}) {
			t.Errorf("resume: %v, %s", codes, out)
		}
		is(t, id, "active")
		if got := inside(t, id, "cat n"); got != "kept\n" {
			t.Errorf("%q", got)
		}
	}
	remove(t, id)
	nothingKept(t)
}

// keeperOf is the process that a session's record names while it has one; 0 is none.
func keeperOf(id string) int {
	var doc struct {
		PID   int
		State string
	}
	text, err := os.ReadFile(filepath.Join(state, "sessions", id, "record.json"))
	if err != nil || json.Unmarshal(text, &doc) != nil || doc.State == "paused" {
		return 0
	}
	return doc.PID
}

// alive is whether a command that was started has not ended; it is not waited for.
func alive(cmd *exec.Cmd) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// A command or a keeper that is killed at any moment loses nothing that was
// acknowledged, and leaves nothing that no session has.
func TestAKilledCommandLosesNothing(t *testing.T) {
	keepable(t)
	provider := providers[1]
	id := session(t, provider, "--id", name(t, provider, 430), "--keep", "--disk", "16MiB")
	is(t, id, "active")
	inside(t, id, "echo kept > n")
	pause(t, id)
	recover := func(what string) {
		t.Helper()
		eventually(t, what+": it is paused again", func() bool {
			switch sessions(t)[id].State {
			case "active":
				run(t, "session", "pause", id)
			case "lost":
				run(t, "session", "resume", id)
			case "paused":
				return true
			}
			return false
		})
	}
	for _, c := range []struct {
		verb   string
		keeper bool // is killed, and who asked it fails or was faster
		after  time.Duration
	}{
		{"resume", false, 20}, {"pause", false, 20}, {"fork", false, 10}, {"resume", true, 10}, {"pause", true, 10},
	} {
		if c.verb == "pause" {
			resume(t, id)
		}
		cmd := command(t, "session", c.verb, id)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		victim := cmd.Process.Pid
		if c.keeper {
			eventually(t, "it has a keeper, or had", func() bool {
				victim = keeperOf(id)
				return victim != 0 || !alive(cmd)
			})
		}
		time.Sleep(c.after * time.Millisecond) // not a wait: a moment to die at
		if !c.keeper || victim == keeperOf(id) && victim != 0 {
			_ = syscall.Kill(victim, syscall.SIGKILL)
		}
		_ = cmd.Wait()
		// What it had begun may be ending still.
		what := fmt.Sprintf("%+v", c)
		eventually(t, what+": it is resumed", func() bool { recover(what); return run(t, "session", "resume", id).code == 0 })
		is(t, id, "active")
		if got := inside(t, id, "cat n"); got != "kept\n" {
			t.Fatalf("%s: %q", what, got)
		}
		pause(t, id)
	}
	var left []string
	defer func() {
		if t.Failed() {
			t.Logf("%q", left)
		}
	}()
	eventually(t, "what was cut off is gone", func() bool {
		mustRun(t, "sweep")
		for other, s := range sessions(t) {
			if other != id && s.State == "paused" { // a fork whose id was not read
				remove(t, other)
			}
		}
		left = append(append(census(), snapshots()...), slices.Collect(maps.Keys(sessions(t)))...)
		return len(left) == 2 // the session, and its snapshot
	})
	remove(t, id)
	nothingKept(t)
}

// freeze makes all that runs in a machine stand still, as a pause does at its end.
func freeze(t *testing.T, instance string) {
	t.Helper()
	frozen := 0
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != instance {
			return nil
		}
		// The other hierarchies of a host that has several have no such file.
		if f, err := os.OpenFile(filepath.Join(path, "cgroup.freeze"), os.O_WRONLY, 0); err == nil {
			if _, err := f.WriteString("1"); err == nil {
				frozen++
			}
			f.Close()
		}
		return nil
	})
	if frozen == 0 {
		t.Fatalf("no cgroup of %s can be frozen", instance)
	}
}

func keeperGone(state string) bool { return state == "paused" || state == "lost" }

// What a keeper that was killed left ends with its session, and before that is resumed:
// nobody has to sweep in between.
func TestNothingOfAKilledKeeperOutlivesItsSession(t *testing.T) {
	keepable(t)
	id := session(t, providers[1], "--id", name(t, providers[1], 440), "--keep", "--disk", "16MiB")
	first := is(t, id, "active")
	inside(t, id, "echo kept > n")
	pause(t, id)
	killed := func(pid int, then string) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "ls says "+then, func() bool { return sessions(t)[id].State == then })
	}
	// While a pause has the machine stand still.
	resume(t, id)
	old := is(t, id, "active")
	inside(t, id, "sleep 1000 & echo lost > n")
	freeze(t, old.InstanceID)
	killed(old.KeeperPID, "lost")
	mustRun(t, "session", "resume", id)
	if got := inside(t, id, "cat n"); got != "kept\n" {
		t.Errorf("%q", got)
	}
	is(t, id, "active")
	for _, what := range census() {
		if strings.Contains(what, old.InstanceID) {
			t.Errorf("beside the machine that was resumed: %s", what)
		}
	}
	pause(t, id)
	if left := census(); len(left) > 0 {
		t.Errorf("a paused session has\n%s", strings.Join(left, "\n"))
	}
	// In a resumption, before it is kept: once it is resumed after that, once removed.
	for _, verb := range []string{"resume", "rm"} {
		cmd := command(t, "session", "resume", id)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := 0
		eventually(t, "there is a machine, or an end", func() bool {
			found, _ := filepath.Glob(filepath.Join(state, "native-*", "instances", "*", "home.image"))
			pid = keeperOf(id)
			return pid != 0 && len(found) > 0 || !alive(cmd)
		})
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = cmd.Wait()
		eventually(t, "its keeper is gone", func() bool { return keeperGone(sessions(t)[id].State) })
		mustRun(t, "session", verb, id)
		if verb == "resume" {
			if s := is(t, id, "active"); s.InstanceID == first.InstanceID {
				t.Error("the same machine")
			}
			pause(t, id)
		}
		if left := census(); len(left) > 0 {
			t.Errorf("%s: %s", verb, strings.Join(left, "\n"))
		}
	}
	nothingKept(t)
}

// A fork of an active session has what it copies from until it has ended, and leaves
// nothing of it where it is killed.
func TestAForkHasWhatItCopiesFrom(t *testing.T) {
	keepable(t)
	id := session(t, providers[1], "--id", name(t, providers[1], 450), "--keep", "--disk", "16MiB")
	is(t, id, "active")
	inside(t, id, "echo kept > n")
	const count = 4
	forks := func() (ids []string) {
		for other := range sessions(t) {
			if other != id {
				ids = append(ids, other)
			}
		}
		return ids
	}
	// forking is a fork that has made its first and cannot say so: its pipe is full.
	filler := make([]byte, 4096)
	forking := func() (cmd *exec.Cmd, out *os.File, errs *strings.Builder) {
		t.Helper()
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		t.Cleanup(func() { out.Close() })
		if _, err := unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, len(filler)); err != nil {
			t.Fatal(err)
		}
		cmd, errs = command(t, "session", "fork", id, "--quiet", "--count", fmt.Sprint(count)), new(strings.Builder)
		cmd.Stdout, cmd.Stderr = in, errs
		if _, err = in.Write(filler); err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has made one", func() bool {
			made := forks()
			return len(made) == 1 && sessions(t)[made[0]].State == "paused"
		})
		return cmd, out, errs
	}

	for _, said := range []int{2, 1} { // lines of the mark: the second comes after the snapshot
		cmd, _, _ := forking()
		kill(cmd, syscall.SIGKILL)
		_ = cmd.Wait()
		if said == 1 {
			forget(t, id)
		}
		if r := mustRun(t, "prune"); strings.Contains(r.stderr, "of no session here") {
			t.Errorf("%s", r.stderr)
		}
		remove(t, forks()...)
		if found := snapshots(); len(found) > 0 {
			t.Errorf("a fork that was killed left %q", found)
		}
		is(t, id, "active")
	}

	cmd, out, errs := forking()
	if r := mustRun(t, "prune", "--dry-run"); strings.Contains(r.stderr, "of no session here") {
		t.Errorf("%s", r.stderr)
	}
	pause(t, id)
	mustRun(t, "sweep")
	said, err := io.ReadAll(out)
	if err = errors.Join(err, cmd.Wait()); err != nil || len(said) < len(filler) {
		t.Fatalf("%v: %s", err, errs)
	}
	ids := strings.Fields(string(said[len(filler):]))
	if len(ids) != count {
		t.Fatalf("%q", ids)
	}
	resume(t, ids[count-1])
	is(t, ids[count-1], "active")
	if got := inside(t, ids[count-1], "cat n"); got != "kept\n" {
		t.Errorf("%q", got)
	}
	remove(t, ids...)
	if found := snapshots(); len(found) != 1 {
		t.Errorf("expected that of the session alone, got %q", found)
	}
	remove(t, id)
	nothingKept(t)
}

// forget leaves of the mark of a fork what it says before its snapshot is made.
func forget(t *testing.T, id string) {
	t.Helper()
	marks, err := filepath.Glob(filepath.Join(state, "sessions", id, "fork-*"))
	if err != nil || len(marks) != 1 {
		t.Fatalf("marks %q, %v", marks, err)
	}
	text, err := os.ReadFile(marks[0])
	first, _, found := strings.Cut(string(text), "\n")
	if err != nil || !found || !strings.HasPrefix(first, "until ") {
		t.Fatalf("%q, %v", text, err)
	}
	if err := os.WriteFile(marks[0], []byte(first+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A session that is paused has no lease of a model route; one that is resumed has a
// new one, with a token that its old machine's files may hold no more.
func TestModel_APausedSessionHasNoLease(t *testing.T) {
	keepable(t)
	m := serveModels(t)
	for range cap(m.goOn) {
		m.goOn <- struct{}{}
	}
	id := session(t, providers[1], "--model", m.name, "--keep")
	is(t, id, "active")
	old := strings.TrimSpace(inside(t, id, "echo $ANTHROPIC_API_KEY | tee token"))
	if got := inside(t, id, askModel(old)); got != "streamed\n" {
		t.Fatalf("%q", got)
	}
	if r := mustRun(t, "session", "pause", id); !strings.Contains(r.stderr, "  models    1 request") {
		t.Errorf("%q", r.stderr)
	}
	s, err := m.operator.Status(t.Context())
	for _, l := range s.Leases {
		if l.Live {
			t.Errorf("a lease outlived its machine: %+v", l)
		}
	}
	if err != nil {
		t.Error(err)
	}
	resume(t, id)
	is(t, id, "active")
	if got := inside(t, id, askModel("$(cat token)")); got != "401 Unauthorized\n" {
		t.Errorf("the token of before: %q", got)
	}
	if got := inside(t, id, askModel("$ANTHROPIC_API_KEY")); got != "streamed\n" {
		t.Errorf("%q", got)
	}
	remove(t, id)
	nothingKept(t)
}
