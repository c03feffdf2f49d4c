package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// broken is a driver of which one part fails.
type broken struct {
	machine.Driver
	start func() error
	reap  func() error
}

func (b broken) Start(ctx context.Context, s machine.Spec) (machine.Machine, error) {
	if b.start != nil {
		if err := b.start(); err != nil {
			return nil, err
		}
	}
	return b.Driver.Start(ctx, s)
}

func (b broken) Reap(ctx context.Context, id, dir string) error {
	if b.reap != nil {
		if err := b.reap(); err != nil {
			return err
		}
	}
	return b.Driver.Reap(ctx, id, dir)
}

// rootless gives out an image whose root is gone.
type rootless struct{ Images }

func (r rootless) Rootfs(ctx context.Context, digest string) (*image.Root, error) {
	root, err := r.Images.Rootfs(ctx, digest)
	if err == nil {
		root.Path = filepath.Join(shared.dir, "no-such-root")
	}
	return root, err
}

var errInjected = errors.New("injected")

func TestProvision_AFailureAtAnyStepLeavesNothing(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		with := func(change func(*Options)) *Provider {
			opt := p.opt
			change(&opt)
			other, err := New(opt)
			if err != nil {
				t.Fatal(err)
			}
			return other
		}
		nothing := func(t *testing.T) {
			t.Helper()
			if left := census(t, p); len(left) > 0 {
				t.Errorf("left:\n%s", strings.Join(left, "\n"))
			}
		}
		t.Run("the image's root is missing", func(t *testing.T) {
			if _, err := with(func(o *Options) { o.Images = rootless{o.Images} }).Provision(t.Context(), request(p)); err == nil {
				t.Error("provisioned")
			}
			nothing(t)
		})
		t.Run("the image is not in the store", func(t *testing.T) {
			r := request(p)
			r.RootImage = "checkfu.local/none@sha256:" + strings.Repeat("0", 64)
			r.Profile.BaseImage = r.RootImage
			if _, err := p.Provision(t.Context(), r); err == nil {
				t.Error("provisioned")
			}
			nothing(t)
		})
		for _, step := range []string{"directory", "record", "home", "root"} {
			t.Run("cancelled at "+step, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				reached := false
				other := with(func(o *Options) {
					o.Step = func(at string) {
						if at == step {
							reached = true
							cancel()
						}
					}
				})
				if _, err := other.Provision(ctx, request(p)); !errors.Is(err, context.Canceled) || !reached {
					t.Errorf("%v, reached %v", err, reached)
				}
				nothing(t)
			})
		}
		t.Run("the driver does not start, then does", func(t *testing.T) {
			failing := true
			other := with(func(o *Options) {
				o.Driver = broken{Driver: o.Driver, start: func() error {
					if failing {
						return errInjected
					}
					return nil
				}}
			})
			id := provision(t, other, request(p))
			if _, err := other.Activate(t.Context(), id); !errors.Is(err, errInjected) {
				t.Errorf("%v", err)
			}
			failing = false
			if _, err := other.Activate(t.Context(), id); err != nil {
				t.Errorf("a second try: %v", err)
			}
			mustExit(t, sh(t, other, id, "true"), 0)
			if err := other.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
			nothing(t)
		})
		t.Run("a destroy that fails is tried again at expiry", func(t *testing.T) {
			var mu sync.Mutex
			failing := true
			other := with(func(o *Options) {
				o.Driver = broken{Driver: o.Driver, reap: func() error {
					mu.Lock()
					defer mu.Unlock()
					if failing {
						return errInjected
					}
					return nil
				}}
			})
			r := request(p)
			r.ExpiresAt = sandbox.At(time.Now().Add(3 * time.Second))
			id := provision(t, other, r)
			if err := other.Destroy(t.Context(), id); !errors.Is(err, errInjected) {
				t.Errorf("%v", err)
			}
			mu.Lock()
			failing = false
			mu.Unlock()
			eventually(t, "the instance is gone", func() bool { return len(census(t, p)) == 0 })
		})
	})
}

// A caller that has given up is told so at once by every member, nothing is
// begun, and the next caller is served.
func TestEveryMember_ACancelledCallerLeavesNothing(t *testing.T) {
	drivers(t, func(t *testing.T, healthy *Provider) {
		p, err := New(healthy.opt) // one that was never asked anything
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Provision(gone, request(p)); !errors.Is(err, context.Canceled) {
			t.Errorf("provision: %v", err)
		}
		id := provision(t, p, request(p, work))
		if _, err := p.Activate(gone, id); !errors.Is(err, context.Canceled) {
			t.Errorf("activate: %v", err)
		}
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for member, call := range map[string]func() error{
			"execute": func() error { _, err := p.Execute(gone, id, shell("true")); return err },
			"open_process": func() error {
				_, err := p.OpenProcess(gone, id, processID, sandbox.ProcessRequest{Executable: "/bin/true", WorkingDirectory: "/"})
				return err
			},
			"list_project_dir": func() error {
				_, err := p.ListProjectDir(gone, id, sandbox.Listing{Root: work.MountPath, MaxEntries: 10})
				return err
			},
			"destroy": func() error { return p.Destroy(gone, id) },
		} {
			begin := time.Now()
			err := call()
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("%s took %s", member, took)
			}
			if err == nil && member != "destroy" { // what was quick enough is done
				t.Errorf("%s worked for a caller that was gone", member)
			}
		}
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
	})
}

// Commands and processes that start while their instance goes end in an error
// or a truth, and leave no descriptor, goroutine or mark behind.
func TestExecute_BesideDestroyNothingLeaks(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		life := func(executes int) {
			id := activated(t, p)
			for range executes {
				mustExit(t, sh(t, p, id, "exit 3"), 3)
			}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 3 {
						s, err := p.Execute(t.Context(), id, shell("exit 5"))
						if err == nil && !s.TimedOut && (s.Exit.ExitCode == nil || *s.Exit.ExitCode != 5) && s.Exit.Signal != "SIGKILL" {
							t.Errorf("%s", showExit(s))
						}
					}
				})
				all.Go(func() {
					proc, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{Executable: "/bin/cat", WorkingDirectory: "/"})
					if err == nil {
						proc.Wait(t.Context())
					}
				})
			}
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
			all.Wait()
		}
		life(10) // what is made once
		quiet := func() (fds, routines int) {
			runtime.GC()
			entries, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(entries), runtime.NumGoroutine()
		}
		fds, routines := quiet()
		life(200)
		for range 30 {
			life(0)
		}
		eventually(t, "no more descriptors and goroutines than before", func() bool {
			f, r := quiet()
			return f <= fds+2 && r <= routines+2
		})
	})
}

// A part of the machine that hangs holds nobody for longer than a bound, and
// does not keep the machine from being taken away.
func TestExecute_AHungMachineIsBoundedAndRemovable(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p, work)
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := in.machine.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		proc := open(t, p, id, "exec sleep 60")
		for _, pid := range seen.Pids {
			unix.Kill(pid, unix.SIGSTOP)
		}
		bounded := func(what string, bound time.Duration, call func(context.Context)) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			begin := time.Now()
			call(ctx)
			took := time.Since(begin)
			t.Logf("%s took %s", what, took)
			if took > bound {
				t.Errorf("%s took %s", what, took)
			}
		}
		bounded("list_project_dir", 20*time.Second, func(ctx context.Context) {
			// On runc the host looks for itself, and needs nobody's answer.
			if _, err := p.ListProjectDir(ctx, id, sandbox.Listing{Root: work.MountPath, MaxEntries: 10}); err == nil && p.opt.Driver.Name() == "runsc" {
				t.Error("a hung machine was listed")
			}
		})
		bounded("execute", 20*time.Second, func(ctx context.Context) {
			if s, err := p.Execute(ctx, id, shell("true")); err == nil && !s.TimedOut {
				t.Errorf("a hung machine ran a command: %s", showExit(s))
			}
		})
		bounded("signal", 20*time.Second, func(ctx context.Context) { proc.Signal(ctx, sandbox.SignalTerminate) })
		bounded("process destroy", 20*time.Second, func(ctx context.Context) { proc.Destroy(ctx) })
		bounded("destroy", 10*time.Second, func(context.Context) {
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
	})
}

func TestCleanup_WhatIsNotAnInstanceIsLeftAlone(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		outside := filepath.Join(p.opt.Dir, "foreign")
		name := func(i int) string { return strings.Repeat("0", 31) + strconv.Itoa(i) }
		at := func(i int) string { return filepath.Join(p.instancesDir(), name(i)) }
		expired := `{"created_at":"2020-01-01T00:00:00.000Z","driver":"` + p.opt.Driver.Name() + `","expires_at":"2020-01-02T00:00:00.000Z","instance_id":"` + name(0) +
			`","owner_pid":1,"root_image":"x","run_id":"r","schema":"checkfu.native-instance.v1","session_id":"s"}`
		err := errors.Join(
			os.MkdirAll(filepath.Join(outside, "home"), 0o755), os.WriteFile(filepath.Join(outside, "home", "f"), []byte("precious"), 0o644),
			os.WriteFile(filepath.Join(outside, "record.json"), []byte(expired), 0o644), os.WriteFile(filepath.Join(outside, "lock"), nil, 0o644),
			os.Symlink(outside, at(0)), os.WriteFile(at(1), []byte("a file"), 0o644), unix.Mkfifo(at(2), 0o644),
			os.WriteFile(filepath.Join(p.instancesDir(), "README"), nil, 0o644), os.Mkdir(filepath.Join(p.instancesDir(), "other"), 0o755),
		)
		if err != nil {
			t.Fatal(err)
		}
		if swept := sweep(t, p); len(swept.InstanceIDs) != 0 {
			t.Errorf("swept %v", swept.InstanceIDs)
		}
		for i := range 3 {
			if err := p.Destroy(t.Context(), sandbox.InstanceID(name(i))); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			if _, err := os.Lstat(at(i)); err != nil {
				t.Error(err)
			}
		}
		if text := readText(t, filepath.Join(outside, "home", "f")); text != "precious" {
			t.Errorf("%q", text)
		}
		if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v %v", all, err)
		}
		entries, _ := os.ReadDir(p.instancesDir())
		for _, e := range entries {
			os.RemoveAll(filepath.Join(p.instancesDir(), e.Name()))
		}
	})
}

func TestCleanup_EveryDamagedRecordIsSweptAtOnce(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		for what, damage := range map[string]func(path string) error{
			"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
			"torn":      func(path string) error { return os.Truncate(path, 40) },
			"huge":      func(path string) error { return os.Truncate(path, 1<<40) },
			"missing":   os.Remove,
			"fifo":      func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
			"link":      func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
			"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		} {
			t.Run(what, func(t *testing.T) {
				crash(t, p, "active")
				entries, err := os.ReadDir(p.instancesDir())
				if err != nil || len(entries) != 1 {
					t.Fatalf("%v %v", entries, err)
				}
				at := place{filepath.Join(p.instancesDir(), entries[0].Name())}
				if err := damage(at.record()); err != nil {
					t.Fatal(err)
				}
				p.List(t.Context())
				begin := time.Now()
				if swept := sweep(t, p); len(swept.InstanceIDs) != 1 {
					t.Errorf("swept %v", swept.InstanceIDs)
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("took %s", took)
				}
				if left := census(t, p); len(left) > 0 {
					t.Errorf("left:\n%s", strings.Join(left, "\n"))
				}
			})
		}
	})
}

// Two drivers on one directory: neither ends the other's machines, for it does
// not know what they are made of.
func TestCleanup_AnotherDriversInstanceIsNotTouched(t *testing.T) {
	p := newProvider(t, "runsc")
	opt := p.opt
	opt.Driver = newDriver(t, "runc", opt.Dir)
	other, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	crash(t, p, "running")
	if swept := sweep(t, other); len(swept.InstanceIDs) != 0 {
		t.Errorf("the other driver swept %v", swept.InstanceIDs)
	}
	entries, _ := os.ReadDir(p.instancesDir())
	if len(entries) != 1 {
		t.Fatal(entries)
	}
	if err := other.Destroy(t.Context(), sandbox.InstanceID(entries[0].Name())); err == nil {
		t.Error("the other driver claims to have destroyed it")
	}
	if swept := sweep(t, p); len(swept.InstanceIDs) != 1 {
		t.Errorf("its own driver swept %v", swept.InstanceIDs)
	}
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// A clock that is set back while a command runs does not make its result a lie.
func TestExecute_AClockThatGoesBackwards(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		opt := p.opt
		var mu sync.Mutex
		now := time.Now().Round(0)
		opt.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(-time.Second)
			return now
		}
		other, err := New(opt)
		if err != nil {
			t.Fatal(err)
		}
		id := activated(t, other)
		if err := sh(t, other, id, "true").Validate(1 << 20); err != nil {
			t.Error(err)
		}
		if e := open(t, other, id, "true").Evidence(); e.ObservedAt.Before(e.StartedAt) {
			t.Errorf("observed at %s, started at %s", e.ObservedAt, e.StartedAt)
		}
	})
}
