package runc

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

func itoa(n int) string { return strconv.Itoa(n) }

// newNetns makes a network namespace with one dummy interface and binds it to
// a file.
func newNetns(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() {
		// The thread is never given back: it ends with its namespace.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		if err == nil {
			// Started from this thread, so in this namespace.
			err = exec.Command("ip", "link", "add", "checkfu0", "type", "bridge").Run()
		}
		made <- err
	}()
	err := <-made
	t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
	if err != nil {
		t.Skipf("network namespace: %v", err)
	}
	return path
}

// owner says to a process of its own what machine to start.
type owner struct {
	Root, Parent string
	Spec         machine.Spec
}

// ownMachine is the main function of that process: start, say so, wait to be
// killed.
func ownMachine(text string) {
	var o owner
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	m, err := New(Options{Root: o.Root, CgroupParent: o.Parent}).Start(context.Background(), o.Spec)
	if err != nil {
		panic(err)
	}
	if _, err := m.Exec(context.Background(), machine.Command{
		Argv: []string{"sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & sleep 1000"}, Env: env, Dir: "/",
	}); err != nil {
		panic(err)
	}
	os.Stdout.WriteString("up\n")
	select {}
}

func (h *host) own(t *testing.T, s machine.Spec) (*exec.Cmd, *os.File) {
	text, err := json.Marshal(owner{h.root, h.parent, s})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CHECKFU_TEST_OWNER="+string(text))
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, r
}

// TestOwnerDeath kills the owner without warning: the machine ends by itself,
// and Reap finds what is left from the host alone.
func TestOwnerDeath(t *testing.T) {
	h := newHost(t)
	s := h.spec(t)
	cmd, r := h.own(t, s)
	if _, err := r.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := unified(all)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(tree.mount, h.parent, s.ID)
	eventually(t, "init and two more", func() bool {
		pids, err := members(dir)
		return err == nil && len(pids) >= 3
	})
	cmd.Process.Kill()
	cmd.Wait()
	if err := empty(within(t, 5*time.Second), dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.driver.Reap(within(t, 10*time.Second), s.ID, s.StateDir); err != nil {
			t.Fatal(err)
		}
	}
	h.mustBeGone(t, s)
}

// TestReapAnyMoment kills the owner at moments all over the start, and reaps.
func TestReapAnyMoment(t *testing.T) {
	h := newHost(t)
	for range 25 {
		s := h.spec(t)
		cmd, _ := h.own(t, s)
		time.Sleep(time.Duration(rand.IntN(70)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		if err := h.driver.Reap(within(t, 10*time.Second), s.ID, s.StateDir); err != nil {
			t.Fatal(err)
		}
		h.mustBeGone(t, s)
	}
}

// TestReapMounts reaps what a runc left that was killed while it had a copy of
// itself mounted in its state.
func TestReapMounts(t *testing.T) {
	h := newHost(t)
	s := h.spec(t)
	dir := filepath.Join(h.root, s.ID)
	copied := filepath.Join(dir, "runc.abcdef")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(copied, []byte("x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := unix.Mount(copied, copied, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for unix.Unmount(copied, unix.MNT_DETACH) == nil { //nolint:revive // until nothing is there
		}
	})
	if err := os.Remove(copied); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("it is no mount: %v", err)
	}
	if err := h.driver.Reap(within(t, 10*time.Second), s.ID, s.StateDir); err != nil {
		t.Fatal(err)
	}
	h.mustBeGone(t, s)
}

// TestReapLeavesOthers reaps one of two machines.
func TestReapLeavesOthers(t *testing.T) {
	h := newHost(t)
	a, s := h.start(t), h.spec(t)
	b, err := h.driver.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := begin(t, b, nil, "sleep", "1000")
	if err := h.driver.Reap(within(t, 10*time.Second), s.ID, s.StateDir); err != nil {
		t.Fatal(err)
	}
	h.mustBeGone(t, s)
	if _, err := p.Wait(within(t, 5*time.Second)); err == nil {
		t.Error("an exit was made up")
	}
	if err := b.Alive(); err == nil {
		t.Error("a reaped machine is alive")
	}
	for range 2 {
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, exit := finish(t, a, nil, "true"); exit != (machine.Exit{}) {
		t.Fatal(exit)
	}
}

func TestStartRefuses(t *testing.T) {
	h := newHost(t)
	for _, tc := range []struct {
		name   string
		change func(*machine.Spec)
		say    string
	}{
		{"short id", func(s *machine.Spec) { s.ID = "abc" }, "ID"},
		{"id that climbs", func(s *machine.Spec) { s.ID = strings.Repeat("../", 10) + "ab" }, "ID"},
		{"relative root", func(s *machine.Spec) { s.Rootfs = "rootfs" }, "Rootfs"},
		{"no root", func(s *machine.Spec) { s.Rootfs += "-none" }, "runc run"},
		{"no init", func(s *machine.Spec) { s.Binds = s.Binds[1:] }, "Binds"},
		{"writable init", func(s *machine.Spec) { s.Binds[0].ReadOnly = false }, "Binds"},
		{"host ids", func(s *machine.Spec) { s.IDBase = 0 }, "IDBase"},
		{"bind from nowhere", func(s *machine.Spec) { s.Binds[1].Source = "/none" }, "runc run"},
		{"network without a name", func(s *machine.Spec) { s.Twin.HostNetwork = true }, "Netns"},
		{"build", func(s *machine.Spec) { s.Build = true }, "Build"},
		{"init that is none", func(s *machine.Spec) { s.Binds[0].Source = filepath.Join(h.dir, "rootfs/bin/true") }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := h.spec(t)
			tc.change(&s)
			if m, err := h.driver.Start(within(t, 20*time.Second), s); err == nil {
				m.Destroy(t.Context())
				t.Fatal("started")
			} else if !strings.Contains(err.Error(), tc.say) {
				t.Fatal(err)
			}
			h.mustBeGone(t, s)
		})
	}
	t.Run("id in use", func(t *testing.T) {
		var used machine.Spec
		m := h.start(t, func(s *machine.Spec) { used = *s })
		if _, err := h.driver.Start(t.Context(), used); err == nil || !strings.Contains(err.Error(), "not in use") {
			t.Errorf("got %v", err)
		}
		if err := m.Alive(); err != nil {
			t.Error(err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		for _, wait := range []time.Duration{0, 5, 15, 25, 35} {
			s := h.spec(t)
			ctx, cancel := context.WithTimeout(t.Context(), wait*time.Millisecond)
			if m, err := h.driver.Start(ctx, s); err == nil {
				m.Destroy(t.Context())
			}
			cancel()
			h.mustBeGone(t, s)
		}
	})
}

func TestProbe(t *testing.T) {
	newHost(t) // skips where the driver lacks anything that it cannot do without
	t.Setenv("PATH", t.TempDir())
	if lacks := New(Options{}).Probe(t.Context()); len(lacks) == 0 || !strings.Contains(lacks[0].Remedy, "apt install runc") {
		t.Errorf("without runc: %+v", lacks)
	}
	fake := filepath.Join(os.Getenv("PATH"), "runc")
	os.WriteFile(fake, []byte("#!/bin/sh\necho 'runc version 1.0.3'\n"), 0o755)
	if lacks := New(Options{}).Probe(t.Context()); len(lacks) != 2 || !strings.Contains(lacks[0].What, "1.0.3") || lacks[1].Axis != "network_policy" {
		t.Errorf("with an old runc: %+v", lacks)
	}
}
