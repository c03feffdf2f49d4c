package gvisor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestShown shows that the guest is told of its limits, not of the host: the
// helper makes the cgroup, so that runsc itself knows of none.
func TestShown(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*machine.Spec)
		memory func(total int64) bool // in bytes
	}{
		{"limits", func(s *machine.Spec) { s.Limits.CPUMillis, s.Limits.MemoryBytes = 1500, 200<<20 },
			func(total int64) bool { return total == 200<<20 }},
		{"twin without limits", func(s *machine.Spec) { s.Twin.NoLimits = true },
			func(total int64) bool { return total > 1<<30 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := start(t, c.change)
			var kib int64
			got := do(t, m, sh("grep MemTotal /proc/meminfo"))
			if _, err := fmt.Sscanf(got.out, "MemTotal: %d kB", &kib); err != nil || !c.memory(kib<<10) {
				t.Errorf("got %q, %v", got.out, err)
			}
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.made.Sandbox))
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Split(string(text), "\x00")
			t.Logf("sentry: %v", args)
			// Every thread of the helper joined every cgroup, and nothing that
			// it started was left out.
			o, err := m.Observe(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			if dirs := cgroupDirs(shared.d.cgroup(m.spec.ID)); !slices.Equal(dirs, o.CgroupPaths) || len(dirs) == 0 {
				t.Errorf("the machine is in %v; its cgroups are %v", o.CgroupPaths, dirs)
			}
		})
	}
}

// TestSentryArgs shows that arguments that runsc has completed stay as they
// are, as do others that do not look like a sentry's.
func TestSentryArgs(t *testing.T) {
	for _, args := range [][]string{
		{"runsc-sandbox"},
		{"runsc-sandbox", "boot", "--total-memory"},
		{"runsc-sandbox", "boot", "--total-memory", "1"},
		{"runsc-sandbox", "boot", "--cpu-num", "2", "--total-memory", "1", "id"},
		{"runsc-sandbox", "--cpu-num-from-quota=false", "boot", "--total-memory", "1", "id"},
	} {
		got, err := sentryArgs(args)
		if err != nil || !slices.Equal(got, args) {
			t.Errorf("%v: got %v, %v", args, got, err)
		}
	}
	if unified() {
		t.Skip("cgroup v1 only")
	}
	got, err := sentryArgs([]string{"runsc-sandbox", "boot", "--total-memory", "4096", "id"})
	if err != nil || got[3] != "4096" || got[len(got)-1] != "id" || !slices.Contains(got, "--cpu-num") {
		t.Errorf("got %v, %v", got, err)
	}
}
