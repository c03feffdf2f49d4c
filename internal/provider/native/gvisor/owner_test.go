package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// ownerMain is a provider that a test kills: it starts the machine that its
// environment describes, says so, and hangs.
func ownerMain(encoded string) {
	var s machine.Spec
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	d, err := New(Options{Root: os.Getenv("CHECKFU_TEST_ROOT"), CgroupParent: "checkfu-test"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	m, err := d.Start(context.Background(), s)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if _, err := m.Exec(context.Background(), sh("while :; do setsid sleep 1 & sleep 0.1; done")); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	select {}
}

// owner starts such a provider and returns its process and its output.
func owner(t *testing.T, s machine.Spec) (*exec.Cmd, io.Reader) {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Args[0] = "owner"
	c.Env = append(os.Environ(), "CHECKFU_TEST_OWNER="+string(encoded), "CHECKFU_TEST_ROOT="+shared.d.root)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	orphans = true
	t.Cleanup(func() {
		if err := shared.d.Reap(bounded(t), s.ID, s.StateDir); err != nil {
			t.Error(err)
		}
		clean(t, s.ID)
		orphans = false
	})
	return c, out
}

// TestOwnerKilled shows that a machine whose owner was killed ends by itself,
// and that a sweep then finds all that is left of it.
func TestOwnerKilled(t *testing.T) {
	need(t)
	s := newSpec(t)
	c, out := owner(t, s)
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if pids, err := shared.d.pids(s.ID); err != nil || len(pids) < 2 {
		t.Fatalf("got %v, %v; want a sentry and a gofer at least", pids, err)
	}
	if err := kill(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	began := time.Now()
	eventually(t, 10*time.Second, "no process of the machine", func() bool {
		pids, err := shared.d.pids(s.ID)
		return err == nil && len(pids) == 0
	})
	t.Logf("gone by itself after %v", time.Since(began))
}

// TestOwnerKilledInStart kills a provider at a random moment of a start.
func TestOwnerKilledInStart(t *testing.T) {
	need(t)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		s := newSpec(t)
		c, out := owner(t, s)
		text := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(out)
			text <- string(b)
		}()
		delay := time.Duration(rand.IntN(250)) * time.Millisecond
		timer := time.NewTimer(delay)
		<-timer.C // the moment itself is the input of this test
		if err := kill(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		before, _ := shared.d.pids(s.ID)
		if err := shared.d.Reap(bounded(t), s.ID, s.StateDir); err != nil {
			t.Fatal(err)
		}
		clean(t, s.ID)
		t.Logf("killed after %v with processes %v: %q", delay, before, <-text)
	}
}

// TestReapExact shows that a sweep touches its own machine only, and nothing
// of a machine that never was.
func TestReapExact(t *testing.T) {
	m := start(t)
	near := m.spec.ID[:31] + "0"
	if near == m.spec.ID {
		near = m.spec.ID[:31] + "1"
	}
	for range 2 {
		if err := shared.d.Reap(bounded(t), near, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := do(t, m, command("true")); got.Exit != (machine.Exit{}) {
		t.Errorf("got %+v", got)
	}
	for _, id := range []string{"", "abc", m.spec.ID[:31], strings.ToUpper(m.spec.ID), "../" + m.spec.ID} {
		if _, ok := errors.AsType[*SpecError](shared.d.Reap(bounded(t), id, "")); !ok {
			t.Errorf("id %q was accepted", id)
		}
	}
}

// TestEndedByMemory shows that a machine that overruns its memory limit ends
// whole, and that everyone who waits is told so.
func TestEndedByMemory(t *testing.T) {
	m := start(t, func(s *machine.Spec) { s.Limits.MemoryBytes = 128 << 20 })
	idle, err := m.Exec(bounded(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	hog, err := m.Exec(bounded(t), command("attack", "memory"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []machine.Process{hog, idle} {
		exit, err := p.Wait(bounded(t))
		ended, ok := errors.AsType[*EndedError](err)
		if !ok || !ended.MemoryLimit {
			t.Errorf("got %+v, %T %v; want *EndedError at the memory limit", exit, err, err)
		}
		if err := p.KillTree(bounded(t)); err != nil {
			t.Errorf("kill of the ended: %v", err)
		}
		if err := p.Signal(bounded(t), "SIGKILL"); err != nil {
			t.Errorf("signal to the ended: %v", err)
		}
	}
	if _, ok := errors.AsType[*EndedError](m.Alive()); !ok {
		t.Errorf("alive: got %v", m.Alive())
	}
	if _, err := m.Exec(bounded(t), command("true")); err == nil {
		t.Error("exec in an ended machine worked")
	}
}

func TestDestroyTwice(t *testing.T) {
	m := start(t)
	p, err := m.Exec(bounded(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		if err := m.Destroy(bounded(t)); err != nil {
			t.Fatal(err)
		}
		t.Logf("destroyed in %v", time.Since(began))
	}
	clean(t, m.spec.ID)
	if _, err := p.Wait(bounded(t)); err == nil {
		t.Error("the exit of a program in a destroyed machine was invented")
	}
}

func TestStartRefused(t *testing.T) {
	need(t)
	tests := map[string]func(*machine.Spec){
		"SharedHostProcs": func(s *machine.Spec) { s.Twin.SharedHostProcs = true },
		"id":              func(s *machine.Spec) { s.ID = "short" },
		"id base":         func(s *machine.Spec) { s.IDBase = 0 },
		"limits":          func(s *machine.Spec) { s.Limits.MemoryBytes = 0 },
		"netns":           func(s *machine.Spec) { s.Twin.HostNetwork = true },
		"relative bind":   func(s *machine.Spec) { s.Binds[0].Source = "init" },
	}
	for name, change := range tests {
		s := newSpec(t)
		change(&s)
		_, err := shared.d.Start(bounded(t), s)
		if _, ok := errors.AsType[*SpecError](err); !ok {
			t.Errorf("%s: got %T %v, want *SpecError", name, err, err)
		}
	}
	for name, change := range map[string]func(*machine.Spec){
		"no root":       func(s *machine.Spec) { s.Rootfs += "-not" },
		"no bind":       func(s *machine.Spec) { s.Binds[1].Source += "-not" },
		"no init":       func(s *machine.Spec) { s.Binds = s.Binds[1:] },
		"little memory": func(s *machine.Spec) { s.Limits.MemoryBytes = 1 << 20 },
	} {
		s := newSpec(t)
		change(&s)
		_, err := shared.d.Start(bounded(t), s)
		if err == nil {
			t.Errorf("%s: started", name)
		}
		t.Logf("%s: %v", name, err)
		clean(t, s.ID)
	}
	s := newSpec(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := shared.d.Start(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	clean(t, s.ID)
	if _, err := os.Stat(filepath.Dir(s.StateDir)); err != nil {
		t.Error(err)
	}
}
