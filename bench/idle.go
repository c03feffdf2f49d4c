package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	idlers      = 20
	idleSeconds = 10
)

// idleCost measures what a sandbox costs that does nothing: its memory in two
// ways, and its CPU.
//
// By its parts, it is the PSS of all processes of the sandbox, the growth of
// our own, and what its memory cgroup charged for the kernel's own memory. By
// MemAvailable everything counts, and so does all else on the machine: that
// line says something only where nothing else runs.
func idleCost(ctx context.Context, w *world) error {
	for _, d := range []struct {
		driver string
		bound  float64
	}{{"runsc", 20}, {"runc", 2}} {
		if err := w.idle(ctx, d.driver, d.bound); err != nil {
			return fmt.Errorf("%s: %w", d.driver, err)
		}
	}
	return nil
}

func (w *world) idle(ctx context.Context, driver string, bound float64) (err error) {
	// What is made once for all sandboxes is there before.
	_, first, err := w.active(ctx, driver)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first()) }()
	availableBefore, selfBefore := available(ctx), ownPSS()
	var ids []string
	for range idlers {
		id, end, err := w.active(ctx, driver)
		if err != nil {
			return err
		}
		defer end()
		if err := w.run(ctx, driver, id, "/bin/true"); err != nil {
			return err
		}
		ids = append(ids, string(id))
	}
	availableAfter, selfAfter := available(ctx), ownPSS()
	f := w.footprint(ids)
	cpuBefore, selfBegin := sumCPU(f.pids), ownCPU()
	if err := pause(ctx, idleSeconds*time.Second); err != nil {
		return err
	}
	selfCPU := ownCPU() - selfBegin
	cpu := sumCPU(f.pids) - cpuBefore + selfCPU

	const mb = 1e6
	// Below zero where text that was ours alone is now shared.
	own := selfAfter - selfBefore
	percent := 100 * cpu.Seconds() / idleSeconds / idlers
	w.rep.add(
		line{what: driver + ": memory of an idle sandbox, by its parts", unit: "MB", ours: samples{(f.processes + own + f.kernel) / idlers / mb}, bound: bound,
			note: fmt.Sprintf("PSS of %sour own process %.2f; kernel %.2f; its memory cgroup says %.2f", shares(f.parts, idlers*mb), own/idlers/mb, f.kernel/idlers/mb, f.charged/idlers/mb)},
		line{what: driver + ": memory of an idle sandbox, by MemAvailable", unit: "MB", ours: samples{(availableBefore - availableAfter) / idlers / mb}, bound: bound},
		line{what: driver + ": idle CPU of a sandbox", unit: "% of a core", ours: samples{percent}, bound: 0.1,
			note: fmt.Sprintf("%d sandboxes used %.1f ms and our own process %.1f ms in %d s", idlers, millis(cpu-selfCPU), millis(selfCPU), idleSeconds)},
	)
	return nil
}

// footprint is what some sandboxes hold of the machine's memory, in bytes, all together.
type footprint struct {
	processes float64            // PSS of their processes
	parts     map[string]float64 // the same by program
	kernel    float64            // what the kernel holds for them
	charged   float64            // what their memory cgroups say
	pids      []int
}

func (w *world) footprint(ids []string) footprint {
	f := footprint{parts: map[string]float64{}}
	lines := commandLines()
	for _, id := range ids {
		for _, pid := range w.processesAmong(id, lines) {
			size := pss(strconv.Itoa(pid))
			f.processes += size
			f.parts[program(pid)] += size
			f.pids = append(f.pids, pid)
		}
		group := filepath.Join(w.parent, id)
		f.kernel += kernelMemory(group)
		f.charged += cgroupNumber(group, "memory.usage_in_bytes", "memory.current")
	}
	return f
}

// program names the program of a process as it was started.
func program(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	name, rest, _ := strings.Cut(string(text), "\x00")
	if name = filepath.Base(name); strings.HasPrefix(rest, "boot\x00") {
		name += " boot"
	}
	return name
}

// shares lists parts in units of one.
func shares(parts map[string]float64, one float64) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		fmt.Fprintf(&b, "%s %.2f, ", name, parts[name]/one)
	}
	return b.String()
}

func ownCPU() time.Duration {
	var usage unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func sumCPU(pids []int) (total time.Duration) {
	for _, pid := range pids {
		total += processCPU(pid)
	}
	return total
}

// processCPU is the CPU time of a live process, to the nanosecond: of all its
// threads by its own clock.
func processCPU(pid int) time.Duration {
	var t unix.Timespec
	// CPUCLOCK_SCHED of a process: see clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// available is the median of some readings: others use the machine, too.
func available(ctx context.Context) float64 {
	var all samples
	for range 9 {
		pause(ctx, 100*time.Millisecond)
		if n, err := meminfo("MemAvailable"); err == nil {
			all = append(all, n)
		}
	}
	return all.median()
}

// ownPSS is this process's own memory, garbage not counted.
func ownPSS() float64 {
	runtime.GC()
	debug.FreeOSMemory()
	return pss("self")
}

func pss(pid string) float64 { return kilobytes("/proc/"+pid+"/smaps_rollup", "Pss") }

func meminfo(name string) (float64, error) {
	n := kilobytes("/proc/meminfo", name)
	if n == 0 {
		return 0, errors.New("/proc/meminfo has no " + name)
	}
	return n, nil
}

// kilobytes reads one "Name: N kB" line, in bytes; 0 if it is not there.
func kilobytes(path, name string) float64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 1 && fields[0] == name+":" {
			n, _ := strconv.ParseFloat(fields[1], 64)
			return n * 1024
		}
	}
	return 0
}

// kernelMemory is what the kernel holds for a cgroup: tasks, page tables, inodes.
func kernelMemory(group string) float64 {
	if n := cgroupNumber(group, "memory.kmem.usage_in_bytes", "memory.kmem.usage_in_bytes"); n > 0 {
		return n
	}
	for _, dir := range cgroupDirs(group) { // version 2
		text, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
		for l := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(l, "kernel "); ok {
				n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
				return n
			}
		}
	}
	return 0
}

// cgroupNumber reads a cgroup's file by the name that its version gives it.
func cgroupNumber(group, v1, v2 string) float64 {
	for _, dir := range cgroupDirs(group) {
		for _, name := range []string{v1, v2} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				n, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
				return n
			}
		}
	}
	return 0
}
