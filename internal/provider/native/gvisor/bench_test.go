package gvisor

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func benchStart(b *testing.B) *gvisorMachine {
	m, err := shared.d.Start(context.Background(), newSpec(b))
	if err != nil {
		b.Fatal(err)
	}
	return m.(*gvisorMachine)
}

func BenchmarkStart(b *testing.B) {
	need(b)
	for b.Loop() {
		m := benchStart(b)
		b.StopTimer()
		if err := m.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkDestroy(b *testing.B) {
	need(b)
	for b.Loop() {
		b.StopTimer()
		m := benchStart(b)
		b.StartTimer()
		if err := m.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecTrue(b *testing.B) {
	m := start(b)
	for b.Loop() {
		p, err := m.Exec(context.Background(), command("true"))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKillTree(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := start(b)
			script := fmt.Sprintf("i=1; while [ $i -lt %d ]; do setsid sleep 1000 & i=$((i+1)); done; sleep 1000", n)
			for b.Loop() {
				b.StopTimer()
				p, err := m.Exec(context.Background(), sh(script))
				if err != nil {
					b.Fatal(err)
				}
				eventually(b, 10*time.Second, "the tree stands", func() bool { return len(guests(b, m)) >= n })
				b.StartTimer()
				if err := p.KillTree(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestIdle measures what machines cost that do nothing.
func TestIdle(t *testing.T) {
	need(t)
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	const n = 5
	var all []*gvisorMachine
	for range n {
		all = append(all, start(t))
	}
	sum := func(f cgroupFile) (total int64) {
		for _, m := range all {
			n, err := f.number(shared.d.cgroup(m.spec.ID))
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		return total
	}
	cpu := func() time.Duration {
		if unified() {
			t.Skip("reads cpuacct of cgroup v1")
		}
		return time.Duration(sum(cgroupFile{controller: "cpuacct", v1: "cpuacct.usage"}))
	}
	first := cpu()
	timer := time.NewTimer(5 * time.Second)
	<-timer.C // the time itself is measured
	used := cpu() - first
	t.Logf("%d idle machines: %d KiB each (memory cgroup), %v of CPU in 5 s together",
		n, sum(cgroupFile{controller: "memory", v1: "memory.usage_in_bytes"})/n/1024, used)
	if used > 100*time.Millisecond {
		t.Errorf("idle machines used %v of CPU in 5 s", used)
	}
}
