package native

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// holding starts the hostile program in a machine and returns how many it says
// that it holds.
func holding(t *testing.T, p *Provider, id sandbox.InstanceID, args ...string) int {
	t.Helper()
	proc, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{
		Executable: "/workspace/repo/hostile", Arguments: args, WorkingDirectory: "/",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proc.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	line := make([]byte, 16)
	n, _ := proc.Output().Read(line)
	count, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatalf("%v: %q", args, line[:n])
	}
	return count
}

// Machines share one block of host ids, so what the kernel counts by user
// could be shared by them, and by the host's root, who made their namespaces:
// the first machine must not be able to take it from the second.
func TestEnforcementStatement_NoMachineTakesWhatTheKernelCountsByUser(t *testing.T) {
	for _, c := range []struct {
		drivers  []string
		kind     string
		ask      int
		atLeast  int
		atMost   int
		hostUses func() error
	}{
		{[]string{"runc", "runsc"}, "inotify", 200, 16, 200, func() error {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}},
		{[]string{"runc"}, "timers", 200000, 1000, 1024, nil},
		{[]string{"runc"}, "queues", 100, 1, 1, nil},
	} {
		for _, driver := range c.drivers {
			t.Run(driver+"/"+c.kind, func(t *testing.T) {
				p := newProvider(t, driver)
				first := holding(t, p, stageHostile(t, p), "hold", c.kind, strconv.Itoa(c.ask))
				second := holding(t, p, stageHostile(t, p), "hold", c.kind, strconv.Itoa(c.ask))
				if first != second || first < c.atLeast || first > c.atMost {
					t.Errorf("the first machine took %d and the second %d, want %d to %d each", first, second, c.atLeast, c.atMost)
				}
				if c.hostUses != nil {
					if err := c.hostUses(); err != nil {
						t.Errorf("the host itself: %v", err)
					}
				}
			})
		}
	}
}

// Two machines of the same host ids both fill up to their own process limit.
func TestEnforcementStatement_ProcessLimitsAreEachMachinesOwn(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		for range 2 {
			r := request(p, work)
			r.Profile.ResourceLimits.MaxProcesses = 64
			id := stageHostileRequest(t, p, r)
			// The program's own threads count where threads do.
			if got := holding(t, p, id, "fill"); got < 48 || got > 74 {
				t.Errorf("%d processes of 64", got)
			}
		}
	})
}

// B15: a fork bomb meets the limit of its own machine. Its neighbour goes on
// working, and the bombed machine can be taken away.
func TestExecute_AForkBombLeavesTheNeighbourAlone(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		r := request(p, work)
		r.Profile.ResourceLimits.CPUMillis = 500
		neighbour, bombed := activated(t, p), stageHostileRequest(t, p, r)
		p95 := func() time.Duration {
			var took []time.Duration
			for range 40 {
				begin := time.Now()
				mustExit(t, sh(t, p, neighbour, "true"), 0)
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			return took[len(took)*95/100]
		}
		quiet := p95()
		open(t, p, bombed, "exec /workspace/repo/hostile bomb")
		in, err := p.find(sandbox.OpExecute, bombed)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the bomb has gone off", func() bool {
			seen, err := in.machine.Observe(t.Context())
			return err == nil && len(seen.Pids) > 15
		})
		// The bomb has half a core of its own; a tenth of a second, and the best of
		// three, are for a host on which more than this test runs: what the bomb
		// does to a neighbour it does each time.
		loud := min(p95(), p95(), p95())
		t.Logf("p95 of the neighbour: %s, beside the bomb %s", quiet, loud)
		if loud > 2*quiet+100*time.Millisecond {
			t.Errorf("the neighbour's p95 went from %s to %s", quiet, loud)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := p.Release(ctx, bombed, sandbox.ReleaseRequest{}); err != nil {
			t.Errorf("release of the bombed machine: %v", err)
		}
		for _, left := range census(t, p) {
			if strings.Contains(left, string(bombed)) {
				t.Error(left)
			}
		}
	})
}

// What is designed: the homes are memory, so the machine is given both, its
// homes hold no more than the disk limit, and none of it is ever swapped.
func TestEnforcementStatement_LimitsAreWhatWasAskedFor(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		asked := in.request.Profile.ResourceLimits
		seen, err := in.machine.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen.MemoryLimit != asked.MemoryBytes+asked.DiskBytes || seen.CPUQuotaMillis != asked.CPUMillis || seen.PidsLimit < asked.MaxProcesses {
			t.Errorf("%+v for %+v", seen, asked)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(in.at.home(), &st); err != nil {
			t.Fatal(err)
		}
		if size := int64(st.Blocks) * st.Bsize; size != asked.DiskBytes || int64(st.Files) != asked.DiskBytes/4096 {
			t.Errorf("home of %d bytes and %d inodes", size, st.Files)
		}
		if options := mountOptions(t, in.at.home()); !strings.Contains(options, "noswap") || !strings.Contains(options, "nosuid") || !strings.Contains(options, "nodev") {
			t.Errorf("home mounted with %s", options)
		}
	})
}

func mountOptions(t *testing.T, path string) string {
	t.Helper()
	for line := range strings.Lines(readText(t, "/proc/self/mountinfo")) {
		if f := strings.Fields(line); f[4] == path {
			return fmt.Sprint(f[5:])
		}
	}
	t.Fatalf("%s is not a mount", path)
	return ""
}
