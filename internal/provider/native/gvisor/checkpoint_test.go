package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func isLive(s *machine.Spec) { s.Live = true }

// detach starts something that outlives its command, and returns its pid inside.
func detach(t testing.TB, m machine.Machine, argv ...string) string {
	t.Helper()
	got := do(t, m, command(guest.DetachCommand(machine.InitPath, "/home/log", argv)...))
	if got.Code != 0 {
		t.Fatalf("detach %q: %+v", argv, got)
	}
	return strings.TrimSpace(got.out)
}

// living starts attack's live program in a machine and waits until it answers.
func living(t testing.TB, m machine.Machine, megabytes int, hold string) {
	t.Helper()
	detach(t, m, "attack", "live", fmt.Sprint(megabytes), hold)
	eventually(t, time.Minute, "it lives", func() bool { return strings.Contains(do(t, m, sh("cat /home/log")).out, "live\n") })
}

// says is what attack's live program answers.
type says struct {
	count, wall, since, pid     int64
	whole                       bool
	uuid, urandom, seeded, host string
	held                        string
}

func asked(t testing.TB, m machine.Machine) (s says) {
	t.Helper()
	got := do(t, m, command("attack", "ask"))
	if _, err := fmt.Sscanf(got.out, "count=%d whole=%t uuid=%s urandom=%s seeded=%s wall=%d since=%d pid=%d host=%s held=%q",
		&s.count, &s.whole, &s.uuid, &s.urandom, &s.seeded, &s.wall, &s.since, &s.pid, &s.host, &s.held); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return s
}

// written pauses a machine, writes it down with its home, and lets it go on.
func written(t testing.TB, m *gvisorMachine) (dir, home string) {
	t.Helper()
	resume, err := m.Pause(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := m.Checkpoint(bounded(t), dir); err != nil {
		t.Fatal(err)
	}
	home = copied(t, m.spec.Binds[1].Source)
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	return dir, home
}

func copied(t testing.TB, home string) string {
	t.Helper()
	to := newSpec(t).Binds[1].Source
	if out, err := exec.Command("cp", "-a", home+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// restored makes a machine out of a checkpoint and a home.
func restored(t testing.TB, dir, home string, change ...func(*machine.Spec)) *gvisorMachine {
	t.Helper()
	s := newSpec(t)
	s.Live, s.Binds[1].Source = true, copied(t, home)
	for _, f := range change {
		f(&s)
	}
	m, err := shared.d.Restore(bounded(t), s, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Destroy(ctx); err != nil {
			t.Error(err)
		}
		clean(t, s.ID)
	})
	return m.(*gvisorMachine)
}

// TestLive_ClonesGoOn shows that clones go on in the middle of their work, each for
// itself, with random numbers of their own and the clock of today (B29).
func TestLive_ClonesGoOn(t *testing.T) {
	m := start(t, isLive)
	living(t, m, 8, "open")
	before := asked(t, m)
	dir, home := written(t, m)
	after := asked(t, m)
	if after.count <= before.count || !after.whole {
		t.Errorf("the machine that was written down did not go on: %+v, then %+v", before, after)
	}
	seen := map[string]bool{before.uuid: true, before.urandom: true, after.uuid: true, after.urandom: true}
	var seeded string
	for i := range 3 {
		c := restored(t, dir, home, func(s *machine.Spec) { s.Hostname = fmt.Sprint("clone", i) })
		first := asked(t, c)
		second := asked(t, c)
		switch {
		case first.count < before.count || second.count <= first.count:
			t.Errorf("clone %d counts %d, %d after %d", i, first.count, second.count, before.count)
		case !first.whole || first.held != "of an open file" || first.pid != before.pid:
			t.Errorf("clone %d: %+v", i, first)
		case first.host != fmt.Sprint("clone", i):
			t.Errorf("clone %d calls itself %q", i, first.host)
		}
		if off := time.Since(time.UnixMilli(second.wall)); off < -time.Minute || off > time.Minute {
			t.Errorf("clone %d: its clock is off by %v", i, off)
		}
		if second.since < first.since || first.since < before.since {
			t.Errorf("clone %d: its monotonic clock goes back: %d, %d after %d", i, first.since, second.since, before.since)
		}
		// Both of one moment: it counts what lies between.
		if gap := (first.wall - before.wall) - (first.since - before.since); gap < -5000 || gap > 5000 {
			t.Errorf("clone %d: its monotonic clock is %d ms behind the time of day", i, gap)
		}
		for _, random := range []string{first.uuid, first.urandom, second.uuid, second.urandom} {
			if seen[random] {
				t.Errorf("clone %d: %s was seen before", i, random)
			}
			seen[random] = true
		}
		// What lies in a process's memory is the same, which docs/limits.md says.
		if seeded == "" {
			seeded = first.seeded
		} else if seeded != first.seeded {
			t.Errorf("clone %d: a seeded generator went another way: %s, %s", i, first.seeded, seeded)
		}
		if got := do(t, c, sh("echo of clone > /home/own; cat /home/own")); got.out != "of clone\n" {
			t.Errorf("clone %d: %+v", i, got)
		}
		// A chain: what was restored is written down again.
		if i == 2 {
			again, home := written(t, c)
			if last := asked(t, restored(t, again, home)); last.count < second.count || !last.whole {
				t.Errorf("restored twice: %+v after %+v", last, second)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(home, "own")); err == nil {
		t.Error("a clone wrote into what it was cloned from")
	}
}

// refused is what keeps a machine from being written down, after which it is unharmed.
func refused(t testing.TB, m *gvisorMachine) machine.Cause {
	t.Helper()
	before := asked(t, m)
	dir := t.TempDir()
	resume, err := m.Pause(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	err = m.Checkpoint(bounded(t), dir)
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	after := asked(t, m)
	if after.count < before.count || after.held != before.held || !after.whole || after.pid != before.pid {
		t.Errorf("it was harmed: %+v, then %+v", before, after)
	}
	refusal, ok := errors.AsType[*machine.CheckpointError](err)
	if !ok {
		t.Fatalf("got %T %v; want *machine.CheckpointError", err, err)
	}
	t.Log(refusal)
	return refusal.Cause
}

// TestLive_WhatIsHeld shows that what is hard to write down is, and works afterwards:
// a deleted file that is open, sockets with and without a name, connections between
// programs, a FIFO (B27).
func TestLive_WhatIsHeld(t *testing.T) {
	m := start(t, isLive)
	living(t, m, 1, "deleted,socket,abstract,connected,fifo")
	before := asked(t, m)
	dir, home := written(t, m)
	const held = "of a deleted filetcpunix"
	if after := asked(t, m); after.count < before.count || after.held != held {
		t.Errorf("it was harmed: %+v, then %+v", before, after)
	}
	r := restored(t, dir, home)
	if got := asked(t, r); got.count < before.count || got.held != held {
		t.Errorf("restored: %+v after %+v", got, before)
	}
	for _, c := range []struct{ script, says string }{
		{"ls /home", "echo\nfifo\nlog\nsocket\n"}, // no more than there was
		{"attack dial /home/socket", "hello\n"},
		{"attack dial @abstract", "hello\n"},
		{"echo x > /home/fifo; read x < /home/fifo; echo $x", "x\n"},
	} {
		if got := do(t, r, sh(c.script)); got.out != c.says {
			t.Errorf("%s: %+v", c.script, got)
		}
	}
}

// TestLive_Refusals shows what is not written down, and that whoever asked goes on with
// a machine that is unharmed (B27).
func TestLive_Refusals(t *testing.T) {
	m := start(t, isLive)
	living(t, m, 1, "open")
	// A full disk is none of the machine's doing.
	before, full := asked(t, m), t.TempDir()
	if err := unix.Mount("full", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	resume, err := m.Pause(bounded(t))
	if err == nil {
		err = errors.Join(m.Checkpoint(bounded(t), full), resume())
	}
	if !errors.Is(err, unix.ENOSPC) || isCause(err, machine.CauseState) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := unix.Unmount(full, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	if after := asked(t, m); after.count < before.count || !after.whole {
		t.Errorf("it was harmed: %+v, then %+v", before, after)
	}
	// Its pipes are ours, and it would be gone.
	p, err := m.Exec(bounded(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if cause := refused(t, m); cause != machine.CauseCommand {
		t.Errorf("beside a command: %s", cause)
	}
	if err := p.KillTree(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(bounded(t)); err != nil {
		t.Fatal(err)
	}
	// The host put another file in the place of one that is open: the sentry has no
	// name for the old one any more.
	home := m.spec.Binds[1].Source
	if err := os.WriteFile(filepath.Join(home, "new"), []byte("of another file"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(home, "new"), filepath.Join(home, "open")); err != nil {
		t.Fatal(err)
	}
	if got := do(t, m, sh("cat /home/open")); got.out != "of another file" {
		t.Fatalf("%+v", got)
	}
	if cause := refused(t, m); cause != machine.CauseState {
		t.Errorf("with a file that the host replaced: %s", cause)
	}

	plain := start(t)
	if err := plain.Checkpoint(bounded(t), t.TempDir()); !isCause(err, machine.CauseNotLive) {
		t.Errorf("of a machine that is not live: %v", err)
	}
	if got := do(t, plain, command(guest.DetachCommand(machine.InitPath, "/dev/null", []string{"true"})...)); got.Code != 1 || !strings.Contains(got.err, "starts nothing detached") {
		t.Errorf("detach there: %+v", got)
	}
}

func isCause(err error, cause machine.Cause) bool {
	e, ok := errors.AsType[*machine.CheckpointError](err)
	return ok && e.Cause == cause
}

// TestLive_Detached shows what a detached program is: the workload's user without a
// capability, even in its bounding set, within the machine's limits, and no part of the
// command that asked for it.
func TestLive_Detached(t *testing.T) {
	const limit = 24
	m := start(t, isLive, func(s *machine.Spec) { s.Limits.Processes = limit })
	status := "grep -E '^(Uid|Gid|Groups|NoNewPrivs|Cap)' /proc/self/status"
	script := status + "; pwd; echo $HOME; ls -l /proc/$$/fd; echo ended"
	p, err := m.Exec(bounded(t), command(guest.DetachCommand(machine.InitPath, "log", []string{"sh", "-c", "sleep 0.1; " + script})...))
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(bounded(t)); err != nil || exit.Code != 0 { // it was handed over
		t.Fatalf("%+v, %v", exit, err)
	}
	if err := p.KillTree(bounded(t)); err != nil {
		t.Fatal(err)
	}
	ran := func(n int) func() bool {
		return func() bool { return strings.Count(do(t, m, sh("cat log")).out, "ended") == n }
	}
	eventually(t, time.Minute, "it outlived its command", ran(1))
	detach(t, m, "sh", "-c", script) // to the same log
	eventually(t, time.Minute, "it ran", ran(2))
	got, direct := do(t, m, sh("cat log")).out, do(t, m, sh(status)).out
	for _, line := range strings.Split(strings.TrimSpace(direct), "\n") {
		if name, _, _ := strings.Cut(line, ":"); name != "Groups" && !strings.Contains(got, line) {
			t.Errorf("want %q as of a command, got %s", line, got)
		}
	}
	for _, want := range []string{"\n/home\n/home\n", "0 -> /dev/null", "1 -> /home/log", "2 -> /home/log\nended"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in %s", want, got)
		}
	}
	for _, c := range []struct {
		argv []string
		code int
	}{{[]string{"nothing-of-this-name"}, 127}, {[]string{"/bin/text"}, 126}} {
		if got := do(t, m, command(guest.DetachCommand(machine.InitPath, "/dev/null", c.argv)...)); got.Code != c.code {
			t.Errorf("%q: %+v", c.argv, got)
		}
	}
	if got := do(t, m, command(guest.DetachCommand(machine.InitPath, "/bin", []string{"true"})...)); got.Code != 1 {
		t.Errorf("to a directory: %+v", got)
	}
	// Init itself gave up what it began with.
	if got := do(t, m, sh("grep -E '^Cap(Prm|Eff|Inh)' /proc/1/status | grep -v 0000000000000000")); got.out != "" {
		t.Errorf("init holds %s", got.out)
	}
	n := 0
	for range 2 * limit {
		if do(t, m, command(guest.DetachCommand(machine.InitPath, "/dev/null", []string{"sleep", "1000"})...)).Code != 0 {
			break
		}
		n++
	}
	if n < limit/3 || n >= limit {
		t.Errorf("started %d of a limit of %d", n, limit)
	}
	if err := m.Alive(); err != nil {
		t.Fatal(err)
	}
}

// TestLive_ControlsHold shows that a restored machine is as bounded as a started one.
func TestLive_ControlsHold(t *testing.T) {
	m := start(t, isLive, func(s *machine.Spec) { s.Limits.Processes = 40 })
	living(t, m, 1, "none")
	dir, home := written(t, m)
	before, err := m.Observe(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	r := restored(t, dir, home, func(s *machine.Spec) { s.Limits = m.spec.Limits })
	after, err := r.Observe(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	after.Pids, after.CgroupPaths, before.Pids, before.CgroupPaths = nil, nil, nil, nil
	if !reflect.DeepEqual(before, after) {
		t.Errorf("started: %+v; restored: %+v", before, after)
	}
	for _, c := range []struct{ script, holds string }{
		{"id -u", "10001\n"},
		{"grep NoNewPrivs /proc/self/status | cut -f2", "1\n"},
		{"suid euid", "10001\n"},
		{"grep CapEff /proc/self/status | cut -f2", "0000000000000000\n"},
		{"grep CapBnd /proc/self/status | cut -f2", "0000000000000000\n"},
		{"touch /tmp/../bin/new 2>/dev/null && echo written || echo refused", "refused\n"},
		{"touch /run/checkfu/new 2>/dev/null && echo written || echo refused", "refused\n"},
		{"ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '", "lo\n"},
	} {
		if got := do(t, r, sh(c.script)); got.out != c.holds {
			t.Errorf("%s: %+v, want %q", c.script, got, c.holds)
		}
	}
	if got := do(t, r, sh("attack forks 100; kill -9 -1")); !strings.Contains(got.out, "resource temporarily unavailable") {
		t.Errorf("forks: %+v", got)
	}
	// What the forks left may have to go first.
	eventually(t, time.Minute, "the memory limit ends it", func() bool {
		if p, err := r.Exec(bounded(t), command("attack", "memory")); err == nil {
			_, _ = p.Wait(bounded(t))
		}
		return r.Alive() != nil
	})
	if ended, ok := errors.AsType[*EndedError](r.Alive()); !ok || !ended.MemoryLimit {
		t.Errorf("it ended so: %v", r.Alive())
	}
}

// TestLive_EndsWithItsOwner shows that a restored init still hangs on its owner.
func TestLive_EndsWithItsOwner(t *testing.T) {
	m := start(t, isLive)
	living(t, m, 1, "none")
	dir, home := written(t, m)
	r := restored(t, dir, home)
	if err := r.owner.Close(); err != nil { // as its death would
		t.Fatal(err)
	}
	select {
	case <-r.ended:
	case <-bounded(t).Done():
		t.Error("it lives without an owner")
	}
}

// TestLive_Damaged shows that what is no checkpoint makes no machine and leaves nothing.
func TestLive_Damaged(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name string
		make func(dir string) error
	}{
		{"nothing", func(string) error { return nil }},
		{"rubbish", func(dir string) error {
			var err error
			for _, name := range []string{"checkpoint.img", "pages_meta.img", "pages.img"} {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("rubbish", 1000)), 0o600))
			}
			return err
		}},
	} {
		s := newSpec(t)
		s.Live = true
		dir := t.TempDir()
		if err := c.make(dir); err != nil {
			t.Fatal(err)
		}
		if m, err := shared.d.Restore(bounded(t), s, dir); err == nil {
			t.Errorf("%s: made %v", c.name, m)
		} else {
			t.Logf("%s: %v", c.name, err)
		}
		clean(t, s.ID)
	}
	s := newSpec(t)
	if _, err := shared.d.Restore(bounded(t), s, t.TempDir()); err == nil {
		t.Error("restored a machine that is not live")
	}
}

func TestIdentity(t *testing.T) {
	need(t)
	a, err := shared.d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", a)
	for _, text := range []string{a.Runtime, a.Build, a.Platform, a.CPU} {
		if text == "" {
			t.Errorf("got %+v", a)
		}
	}
	b := a
	b.CPU = "another"
	if field, _, _ := a.Differ(b); field != "cpu" {
		t.Errorf("got %q", field)
	}
	if field, _, _ := a.Differ(a); field != "" {
		t.Errorf("got %q", field)
	}
}
