package native

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// nothingLeft holds that of p nothing is on the host.
func nothingLeft(t testing.TB, p *Provider) {
	t.Helper()
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

// ahead is a clock that a test sets forward.
type ahead struct{ by atomic.Int64 }

func (c *ahead) now() time.Time          { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *ahead) forward(d time.Duration) { c.by.Add(int64(d)) }

// A machine that nobody claims ends, and one that is claimed lives as long as its
// request says. A shape that nobody asks for any more is forgotten.
func TestWarm_NothingWaitsForEver(t *testing.T) {
	var clock ahead
	p := warmed(t, newProvider(t, "runc"), Warm{Each: 2, Life: time.Minute}, func(o *Options) { o.Now = clock.now })
	asked(t, p, request(p))
	waitFor(t, p, 2)
	id := provision(t, p, request(p))
	waitFor(t, p, 2)
	clock.forward(61 * time.Second)
	p.pool.nudge()
	eventually(t, "only the claimed one is there", func() bool {
		list, err := p.List(t.Context())
		return err == nil && len(list) == 1 && list[0].InstanceID == id && !list[0].Waits
	})
	if s, wait := p.pool.next(); s != nil || wait < time.Hour {
		t.Errorf("%v, %v: it still looks after somebody", s, wait)
	}
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// The bounds hold: machines of the shapes asked for last, so many in all, in so much
// memory.
func TestWarm_Bounds(t *testing.T) {
	cold := newProvider(t, "runc")
	small := request(cold)
	small.Profile.ResourceLimits.MaxProcesses--
	count := func(p *Provider) (of [2]int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.pool.shapes {
			of[int(request(p).Profile.ResourceLimits.MaxProcesses-s.request.Profile.ResourceLimits.MaxProcesses)] += len(s.ready)
		}
		return of
	}
	for name, test := range map[string]struct {
		warm   Warm
		before [2]int
		want   [2]int
	}{
		"shapes":   {Warm{Each: 2, Shapes: 1}, [2]int{2, 0}, [2]int{0, 2}},
		"machines": {Warm{Each: 2, Machines: 3}, [2]int{2, 0}, [2]int{1, 2}},
		"both fit": {Warm{Each: 1}, [2]int{1, 0}, [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := warmed(t, cold, test.warm)
			asked(t, p, request(p))
			eventually(t, "the first wait", func() bool { return count(p) == test.before })
			asked(t, p, small)
			eventually(t, "the last asked for wait", func() bool { return count(p) == test.want })
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			nothingLeft(t, p)
		})
	}
	t.Run("memory", func(t *testing.T) {
		told := make(chan error, 8)
		p := warmed(t, cold, Warm{Each: 2, Memory: 1, Failed: func(err error) { told <- err }})
		asked(t, p, request(p))
		select {
		case err := <-told:
			t.Log(err)
		case <-time.After(time.Minute):
			t.Fatal("it waits, and holds no memory")
		}
		eventually(t, "it is gone", func() bool { return len(census(t, p)) == 0 })
		if s, _ := p.pool.next(); s != nil || p.Waiting() > 0 {
			t.Error("it is tried again")
		}
	})
	for _, warm := range []Warm{{Each: -1}, {Shapes: -1}, {Machines: -1}, {Memory: -1}, {Life: -1}, {Quiet: -1}} {
		opt := cold.opt
		opt.Warm = warm
		if _, err := New(opt); err == nil || !strings.Contains(err.Error(), "warm.") {
			t.Errorf("%+v: %v", warm, err)
		}
	}
}

// What cannot be started leaves nothing, is told once, and is not tried again before
// somebody asks for one.
func TestWarm_AFailureLeavesNothing(t *testing.T) {
	cold := newProvider(t, "runc")
	var starts atomic.Int64
	fail := errors.New("no machine today")
	told := make(chan error, 8)
	p := warmed(t, cold, Warm{Each: 1, Failed: func(err error) { told <- err }}, func(o *Options) {
		o.Driver = broken{Driver: o.Driver, start: func() error { starts.Add(1); return fail }}
	})
	for n := range 2 {
		asked(t, p, request(p))
		select {
		case err := <-told:
			if !errors.Is(err, fail) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("nobody was told")
		}
		eventually(t, "it is gone", func() bool { return len(census(t, p)) == 0 })
		p.pool.nudge()
		if s, _ := p.pool.next(); s != nil || starts.Load() != int64(n+1) {
			t.Errorf("%d starts; next %v", starts.Load(), s)
		}
	}
}

// The end of the provider ends a machine that is being started ahead, at each step.
func TestClose_WhileAMachineIsStarted(t *testing.T) {
	cold := newProvider(t, "runc")
	for _, at := range []string{"ahead", "record", "root", "started ahead"} {
		t.Run(at, func(t *testing.T) {
			reached, goOn := make(chan struct{}), make(chan struct{})
			var filling atomic.Bool
			p := warmed(t, cold, Warm{Each: 2}, func(o *Options) {
				o.Step = func(step string) {
					filling.CompareAndSwap(false, step == "ahead")
					if step == at && filling.Load() {
						select {
						case <-reached:
						default:
							close(reached)
							<-goOn
						}
					}
				}
			})
			p.pool.learn(request(p))
			p.pool.nudge()
			<-reached
			closed := make(chan error, 1)
			go func() { closed <- p.Close() }()
			eventually(t, "it closes", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.pool.closed })
			close(goOn)
			if err := <-closed; err != nil {
				t.Error(err)
			}
			nothingLeft(t, p)
			id := activate(t, p, request(p)) // cold
			mustExit(t, sh(t, p, id, "true"), 0)
			if s, wait := p.pool.next(); s != nil || wait < time.Hour || p.Waiting() > 0 {
				t.Error("it learns on")
			}
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
}

// A removal in the middle of a claim removes the machine, and whoever claimed it is
// given another.
func TestDestroy_InTheMiddleOfAClaim(t *testing.T) {
	cold := newProvider(t, "runc")
	for _, at := range []string{"claimed", "enrolled"} {
		t.Run(at, func(t *testing.T) {
			var p *Provider
			var claimed sandbox.InstanceID
			destroyed := make(chan error, 1)
			p = warmed(t, cold, Warm{Each: 1}, func(o *Options) {
				o.Step = func(step string) {
					if step != at || claimed != "" {
						return
					}
					p.mu.Lock()
					var in *instance
					for _, in = range p.instances {
					}
					p.mu.Unlock()
					claimed = in.id
					go func() { destroyed <- p.Destroy(context.Background(), in.id) }()
					eventually(t, "its end has begun", in.isEnding)
				}
			})
			asked(t, p, request(p))
			waitFor(t, p, 1)
			ready := waitingIDs(t, p)
			id := activate(t, p, request(p))
			if err := <-destroyed; err != nil {
				t.Error(err)
			}
			if claimed != ready[0] || id == claimed {
				t.Errorf("%v waited, %s was removed, %s given", ready, claimed, id)
			}
			if there, err := p.place(claimed).real(); there || err != nil {
				t.Errorf("what was removed is there: %v, %v", there, err)
			}
			mustExit(t, sh(t, p, id, "true"), 0)
		})
	}
}

// A machine that waits is nobody's instance: no member but a removal finds it, a
// cleanup does not name it, and takes it neither from an owner that lives before its
// time.
func TestCleanup_AMachineThatWaitsIsNobodys(t *testing.T) {
	cold := newProvider(t, "runc")
	p := warmed(t, cold, Warm{Each: 1})
	asked(t, p, request(p))
	waitFor(t, p, 1)
	ready := waitingIDs(t, p)
	if _, err := p.Activate(t.Context(), ready[0]); !errors.Is(err, sandbox.NoInstance(sandbox.OpActivate, ready[0])) {
		t.Errorf("activate: %v", err)
	}
	if err := p.WriteFile(t.Context(), ready[0], sandbox.FileWrite{Path: sandbox.OutputPath + "/f"}); !errors.Is(err, sandbox.NoInstance(sandbox.OpWriteFile, ready[0])) {
		t.Errorf("write: %v", err)
	}
	now := later(time.Second)
	for _, by := range []*Provider{cold, p} {
		swept, err := by.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
		if err != nil || len(swept.InstanceIDs) > 0 || !slices.Equal(waitingIDs(t, p), ready) {
			t.Errorf("swept %v, %v", swept, err)
		}
	}
	done := p.pool.work() // no other one
	defer done()
	past := later(time.Hour)
	swept, err := p.Cleanup(t.Context(), sandbox.CleanupRequest{Now: past, OrphanedBefore: past})
	if err != nil || len(swept.InstanceIDs) > 0 {
		t.Errorf("swept %v, %v", swept, err)
	}
	nothingLeft(t, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.instances) > 0 || len(p.pool.shapes[0].ready) > 0 {
		t.Errorf("it is there, they say: %v", p.instances)
	}
}

// A sweep by a clock that is ahead does not pull away what is being started.
func TestCleanup_AMachineThatIsStartedAhead(t *testing.T) {
	var p *Provider
	var first sync.Once // the next is started while the test's own instance lives
	swept := make(chan error, 1)
	p = warmed(t, newProvider(t, "runc"), Warm{Each: 1}, func(o *Options) {
		o.Step = func(step string) {
			if step == "started ahead" {
				first.Do(func() {
					past := later(time.Hour)
					_, err := p.Cleanup(context.Background(), sandbox.CleanupRequest{Now: past, OrphanedBefore: past})
					swept <- err
				})
			}
		}
	})
	asked(t, p, request(p))
	if err := <-swept; err != nil {
		t.Error(err)
	}
	waitFor(t, p, 1)
	id := activate(t, p, request(p))
	mustExit(t, sh(t, p, id, "true"), 0)
}

// Whoever reads its id may end it.
func TestDestroy_AMachineThatWaits(t *testing.T) {
	p := warmed(t, newProvider(t, "runc"), Warm{Each: 1})
	asked(t, p, request(p))
	waitFor(t, p, 1)
	done := p.pool.work()
	defer done()
	if err := p.Destroy(t.Context(), waitingIDs(t, p)[0]); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, p)
}

// One that cannot be ended is not forgotten.
func TestClose_TellsWhatCouldNotBeEnded(t *testing.T) {
	var stuck atomic.Bool
	fail := errors.New("it does not end")
	cold := newProvider(t, "runc")
	p := warmed(t, cold, Warm{Each: 1}, func(o *Options) {
		o.Driver = broken{Driver: o.Driver, reap: func() error {
			if stuck.Load() {
				return fail
			}
			return nil
		}}
	})
	asked(t, p, request(p))
	waitFor(t, p, 1)
	ready := waitingIDs(t, p)
	stuck.Store(true)
	if err := p.Close(); !errors.Is(err, fail) {
		t.Errorf("closed: %v", err)
	}
	stuck.Store(false)
	if err := p.Destroy(t.Context(), ready[0]); err != nil {
		t.Error(err)
	}
	nothingLeft(t, p)
}

func TestMemoryOf(t *testing.T) {
	dir := t.TempDir()
	limits := machine.Limits{MemoryBytes: 77}
	for _, test := range []struct {
		name, content string
		want          int64
	}{
		{"nothing", "", 77}, {"memory.current", "12\n", 12}, {"memory.usage_in_bytes", "34\n", 34}, {"memory.usage_in_bytes", "x", 12},
	} {
		if err := os.WriteFile(dir+"/"+test.name, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := memoryOf(machine.Observed{CgroupPaths: []string{dir + "/none", dir}}, limits); got != test.want {
			t.Errorf("%s %q: %d, want %d", test.name, test.content, got, test.want)
		}
	}
}
