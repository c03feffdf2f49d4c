package gvisor

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestProcessLimit shows that the limit of processes is a refused fork, that
// the machine lives on, and that the twin without limits forks further.
func TestProcessLimit(t *testing.T) {
	const limit, tried = 40, 100
	m := start(t, func(s *machine.Spec) { s.Limits.Processes = limit })
	got := do(t, m, command("attack", "forks", fmt.Sprint(tried)))
	var n int
	if _, err := fmt.Sscan(got.out, &n); err != nil || n < limit/2 || n >= limit || !strings.Contains(got.out, "resource temporarily unavailable") {
		t.Errorf("got %+v; want between %d and %d forks and EAGAIN", got, limit/2, limit)
	}

	// What is left of it fills the limit: an Exec is refused, as the machine's
	// state and not as the caller's mistake.
	p, err := m.Exec(bounded(t), sh("while :; do sleep 1000 & done"))
	for i := 0; err == nil && i < limit; i++ {
		_, err = m.Exec(bounded(t), sh("sleep 1000"))
	}
	if _, mistake := errors.AsType[*machine.StartError](err); err == nil || mistake {
		t.Errorf("got %T %v; want a refusal that is no *StartError", err, err)
	}
	if err := m.Alive(); err != nil {
		t.Fatal(err)
	}
	if p != nil {
		if err := p.KillTree(bounded(t)); err != nil {
			t.Error(err)
		}
	}

	twin := start(t, func(s *machine.Spec) {
		s.Limits.Processes = limit
		s.Twin.NoLimits = true
	})
	if got := do(t, twin, command("attack", "forks", fmt.Sprint(tried))); got.out != fmt.Sprintln(tried, "no refusal") {
		t.Errorf("twin: got %+v", got)
	}
}

// TestCPULimit shows that the quota holds against two busy programs.
func TestCPULimit(t *testing.T) {
	m := start(t, func(s *machine.Spec) { s.Limits.CPUMillis = 200 })
	usage := cgroupFile{controller: "cpuacct", v1: "cpuacct.usage"}
	if unified() {
		t.Skip("reads cpuacct of cgroup v1")
	}
	for range 2 {
		if _, err := m.Exec(bounded(t), sh("while :; do :; done")); err != nil {
			t.Fatal(err)
		}
	}
	name := shared.d.cgroup(m.spec.ID)
	first, err := usage.number(name)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	timer := time.NewTimer(2 * time.Second)
	<-timer.C // the time itself is measured
	last, err := usage.number(name)
	if err != nil {
		t.Fatal(err)
	}
	share := float64(last-first) / float64(time.Since(began))
	t.Logf("used %.3f of a core with a quota of 0.2", share)
	if share > 0.26 {
		t.Errorf("used %.3f of a core with a quota of 0.2", share)
	}
}

func TestParallelStarts(t *testing.T) {
	need(t)
	var wg sync.WaitGroup
	for range 4 {
		s := newSpec(t)
		wg.Go(func() {
			m, err := shared.d.Start(bounded(t), s)
			if err != nil {
				t.Error(err)
				return
			}
			p, err := m.Exec(bounded(t), sh("exit 7"))
			if err != nil {
				t.Error(err)
			} else if exit, err := p.Wait(bounded(t)); err != nil || exit.Code != 7 {
				t.Errorf("got %+v, %v", exit, err)
			}
			if err := m.Destroy(bounded(t)); err != nil {
				t.Error(err)
			}
			if dirs := cgroupDirs(shared.d.cgroup(s.ID)); len(dirs) != 0 {
				t.Errorf("cgroups left: %v", dirs)
			}
		})
	}
	wg.Wait()
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{},
		{Root: "relative", CgroupParent: "checkfu"},
		{Root: "/run/../x", CgroupParent: "checkfu"},
		{Root: "/" + strings.Repeat("x", maxRoot), CgroupParent: "checkfu"},
		{Root: "/run/x", CgroupParent: ""},
		{Root: "/run/x", CgroupParent: "../escape"},
		{Root: "/run/x", CgroupParent: "a/b"},
	} {
		_, err := New(o)
		if _, ok := errors.AsType[*OptionError](err); !ok {
			t.Errorf("%+v: got %T %v, want *OptionError", o, err, err)
		}
	}
}
