// Command bench measures Checkfu beside the raw primitives that it stands on,
// in one run on one machine, and prints a Markdown table of medians, ratios
// and bounds, with the exact command that each raw side is.
//
// Shape: the two sides of a pair take turns (A B A B ...), so that whatever
// else the machine does falls on both. Every raw side is timed as a user runs
// it, from the start of its process to its end.
// Trusts: the machine. Bounds: each measurement stops after its time budget
// with the samples it has by then. Ownership: everything lies in one temporary
// directory, one cgroup and our own children; all of it is removed, and a
// census at the end says what is not.
// Needs: root, busybox-static, runc; docker where there is one.
// Source: design "Quality"; the bounds are those of README "Speed".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
)

// bench is one measurement.
type bench struct {
	name string
	run  func(ctx context.Context, w *world) error
}

var benches = []bench{
	{"first-runsc", firstRunsc},
	{"first-runc", firstRunc},
	{"warm-runsc", warmRunsc},
	{"warm-runc", warmRunc},
	{"exec-runsc", execRunsc},
	{"exec-runc", execRunc},
	{"stage", stageFiles},
	{"list", listFiles},
	{"runtime", runtimeCost},
	{"conformance", conformanceRuns},
	{"many", manyAtOnce},
	{"idle", idleCost},
	{"crowd-runsc", crowdRunsc},
	{"crowd-runc", crowdRunc},
	{"unpack", unpackImage},
	{"stream", streamOutput},
	{"patch", patchRepository},
	{"inside-unpack", insideUnpack},
	{"inside-npm", insideNPM},
	{"wire-call", wireCall},
	{"wire-echo", wireEcho},
	{"wire-stdout", wireStdout},
	{"wire-stage", wireStage},
	{"wire-file", wireFile},
	{"wire-batch", wireBatch},
	{"snapshot-copied", snapshotCopied},
	{"snapshot-shared", snapshotShared},
	{"durable", durableSessions},
	{"live", liveState},
	{"egress-connect", egressConnect},
	{"egress-bulk", egressBulk},
	{"egress-tunnels", egressTunnels},
}

// budget bounds one measurement: a hung command ends with it.
const budget = 4 * time.Minute

func main() {
	dispatchRaw()
	dispatchFetch()
	dispatchLoad()
	gvisor.Dispatch()
	only := flag.String("only", "", "run only the measurements whose names begin with one of these, by commas")
	n := flag.Int("n", 20, "samples of each side")
	out := flag.String("out", "", "also write the table to this file (a whole run writes bench/RESULTS.md)")
	profile := flag.String("cpuprofile", "", "write a CPU profile of our own process to this file")
	other := flag.String("guard", "", "another build of checkfu-guard, to be measured beside this one's")
	flag.Parse()
	if flag.NArg() > 0 || *n < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *out == "" && *only == "" {
		if _, err := os.Stat("bench/main.go"); err == nil {
			*out = "bench/RESULTS.md"
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	rep, err := measure(ctx, strings.Split(*only, ","), *n, *other)
	pprof.StopCPUProfile()
	if rep != nil {
		text := rep.markdown()
		fmt.Print(text)
		if *out != "" {
			if werr := os.WriteFile(*out, []byte(text), 0o644); werr != nil {
				fmt.Fprintln(os.Stderr, werr)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measure runs what was asked for. A measurement that fails is a line of the
// report and does not end the others.
func measure(ctx context.Context, only []string, n int, guard string) (*report, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("needs root, as a provider does")
	}
	w, err := newWorld(ctx, n)
	if err != nil {
		return nil, err
	}
	w.guard = guard
	failed := false
	for _, b := range benches {
		if !wanted(b.name, only) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), b.name)
		bounded, cancel := context.WithTimeout(ctx, budget)
		if err := b.run(bounded, w); err != nil {
			failed = true
			w.rep.failure(b.name, err)
			fmt.Fprintf(os.Stderr, "%s: %v\n", b.name, err)
		}
		cancel()
	}
	err = w.close()
	w.rep.census = w.census()
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted")
	case failed:
		err = fmt.Errorf("a measurement failed")
	case len(w.rep.census) > 0:
		err = fmt.Errorf("left behind: %s", strings.Join(w.rep.census, "; "))
	}
	return w.rep, err
}

func wanted(name string, only []string) bool {
	for _, o := range only {
		if strings.HasPrefix(name, o) {
			return true
		}
	}
	return false
}

// self is this program's own file.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return filepath.Clean(path)
}
