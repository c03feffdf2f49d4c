package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// target is the oracle with its provider wrapped.
func target(wrap func(p sandbox.Provider) sandbox.Provider) conformance.Target {
	t, p := oracle.New("conformance")
	if wrap != nil {
		t.Provider = wrap(p)
		t.Restart = func(context.Context) (sandbox.Provider, error) { return t.Provider, nil }
	}
	return t
}

// once is the quickest run of some suites.
func once(suites ...report.Suite) conformance.Options {
	return conformance.Options{Suites: suites, Passes: 1, StreamBytes: 1 << 20, Seed: "7f3a", Patience: 10 * time.Second}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		o      conformance.Options
		option string // "": they are right
	}{
		{conformance.Options{}, ""},
		{conformance.Options{Suites: report.Suites(), Only: []string{"none-egress", "files.*"}, Seed: "aZ-_9", Passes: 1000}, ""},
		{conformance.Options{Suites: []report.Suite{report.Nine, "ten"}}, "suite"},
		{conformance.Options{Suites: []report.Suite{""}}, "suite"},
		{conformance.Options{Suites: []report.Suite{report.Standing}}, "suite"},
		{conformance.Options{Only: []string{"none-egress", "no-such"}}, "run"},
		{conformance.Options{Only: []string{""}}, "run"},
		{conformance.Options{Only: []string{"["}}, "run"},
		{conformance.Options{Suites: []report.Suite{report.Nine}, Only: []string{"execute.*"}}, "run"},
		{conformance.Options{Seed: "two words"}, "seed"},
		{conformance.Options{Seed: "\xff"}, "seed"},
		{conformance.Options{Seed: strings.Repeat("a", conformance.MaxSeedBytes+1)}, "seed"},
		{conformance.Options{Passes: -1}, "repeat"},
		{conformance.Options{Passes: 1001}, "repeat"},
	} {
		err := c.o.Check()
		wrong, ok := errors.AsType[*conformance.OptionError](err)
		if ok != (c.option != "") || ok && (wrong.Option != c.option || wrong.Expected == "" || !strings.HasPrefix(err.Error(), c.option+": expected ")) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

// TestPlanIsWhatRuns: for envelopes that claim less and less, what a plan says
// is what a run does.
func TestPlanIsWhatRuns(t *testing.T) {
	reduced := func(change func(*sandbox.Capabilities)) func(sandbox.Provider) sandbox.Provider {
		return func(p sandbox.Provider) sandbox.Provider { return sandboxtest.Reduce(p, change) }
	}
	for name, c := range map[string]struct {
		wrap     func(sandbox.Provider) sandbox.Provider
		withhold []report.Token
		missing  int // of the nine
	}{
		"full":     {},
		"withheld": {nil, []report.Token{report.SnapshotToken, report.ZDR}, 4},
		"minimum":  {sandboxtest.Minimum, nil, 6},
		"day one":  {sandboxtest.DayOne, nil, 4},
		"docker":   {sandboxtest.DockerPosture, nil, 1},
		"no snapshots": {reduced(func(c *sandbox.Capabilities) {
			c.Snapshots, c.SnapshotClone, c.RetentionModes = false, false, []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
		}), nil, 3},
		"no mounts":  {reduced(func(c *sandbox.Capabilities) { c.MaxMounts, c.ActiveMountWrite = 0, false }), nil, 2},
		"no listing": {reduced(func(c *sandbox.Capabilities) { c.ListDir = false }), nil, 0},
		"no grade":   {reduced(func(c *sandbox.Capabilities) { c.EgressCertification = "" }), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			target := target(c.wrap)
			target.Withhold = c.withhold
			o := once(report.Suites()...)
			plan, err := conformance.Plan(t.Context(), target, o)
			if err != nil {
				t.Fatal(err)
			}
			rep := conformance.Run(t.Context(), target, o)
			ran := slices.Concat(rep.Cases, rep.Probes)
			if len(plan) != len(ran) {
				t.Fatalf("%d rows planned, %d came", len(plan), len(ran))
			}
			for i, p := range plan {
				got := ran[i].Status
				if got != report.Skip && got != report.Withheld {
					got = ""
				}
				// The deeper suites also skip what only a machine can tell.
				told := p.Status == "" && got == report.Skip && p.Suite != report.Nine && !strings.Contains(ran[i].Reason, "the envelope does not give it")
				if p.ID != ran[i].ID || p.Status != got && !told {
					t.Errorf("%s: planned %q, came %q (%s)", p.ID, p.Status, ran[i].Status, ran[i].Reason)
				}
			}
			if got := report.Count(rep.Cases, report.Skip) + report.Count(rep.Cases, report.Withheld); got != c.missing {
				t.Errorf("%d of the nine did not apply, want %d", got, c.missing)
			}
			if rep.ExitCode != report.ExitConformant && rep.ExitCode != report.ExitIncomplete {
				t.Errorf("%s, exit %d: %s", rep.Verdict, rep.ExitCode, rep.Reason)
			}
		})
	}
}

// TestClosedReadMayLeaveOutFilesystem is the one skip that a plan cannot see.
func TestClosedReadMayLeaveOutFilesystem(t *testing.T) {
	closed := func(p sandbox.Provider) sandbox.Provider {
		return sandboxtest.Override{Provider: p, ReadFileFunc: func(context.Context, sandbox.InstanceID, sandbox.FileRead) ([]byte, error) {
			return nil, sandbox.Unavailable(sandbox.OpReadFile, sandbox.RequireContainedRead, "a contained read", "none")
		}}
	}
	target := target(closed)
	target.Withhold = []report.Token{report.Filesystem}
	plan, err := conformance.Plan(t.Context(), target, once(report.Nine))
	if err != nil {
		t.Fatal(err)
	}
	rep := conformance.Run(t.Context(), target, once(report.Nine))
	row := rep.Cases[0]
	if plan[0].Status != report.Withheld || row.ID != "stage-seal-execute" || row.Status != report.Skip || !strings.Contains(row.Reason, "fails closed") {
		t.Errorf("planned %q, came %q (%s)", plan[0].Status, row.Status, row.Reason)
	}
}

// TestNineRowsAlways: whatever was asked for and whatever is there.
func TestNineRowsAlways(t *testing.T) {
	var nine []string
	for _, row := range conformance.Run(t.Context(), target(nil), once(report.Nine)).Cases {
		nine = append(nine, row.ID)
	}
	if len(nine) != 9 {
		t.Fatalf("the nine are %v", nine)
	}
	filtered := once()
	filtered.Only = []string{"none-egress"}
	brief := once()
	brief.Budget = time.Nanosecond
	for name, c := range map[string]struct {
		provider func(sandbox.Provider) sandbox.Provider
		o        conformance.Options
		code     int64
		probes   bool
	}{
		"contract alone": {nil, once(report.Contract), report.ExitIncomplete, true},
		"egress alone":   {nil, once(report.Egress), report.ExitIncomplete, false},
		"a filter":       {nil, filtered, report.ExitIncomplete, true},
		"no time":        {nil, brief, report.ExitIncomplete, true},
		"no provider":    {func(sandbox.Provider) sandbox.Provider { return nil }, once(report.Nine), report.ExitError, false},
	} {
		rep := conformance.Run(t.Context(), target(c.provider), c.o)
		var got []string
		for _, row := range rep.Cases {
			got = append(got, row.ID)
			if row.Status == report.Pass && row.ID != "none-egress" {
				t.Errorf("%s: %s passed unasked", name, row.ID)
			}
		}
		if !slices.Equal(got, nine) {
			t.Errorf("%s: rows %v", name, got)
		}
		if rep.ExitCode != c.code || len(rep.Probes) > 0 != c.probes {
			t.Errorf("%s: exit %d (%s), %d probes", name, rep.ExitCode, rep.Reason, len(rep.Probes))
		}
		if _, err := report.Encode(rep); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// drawn are the ids and names of a run.
var drawn = regexp.MustCompile("[0-9a-f]{16,}")

// TestDumbProviders: who throws, answers anything with success, or is not
// there gets a verdict that says why, in what a person reads.
func TestDumbProviders(t *testing.T) {
	var out strings.Builder
	for _, s := range sandboxtest.Baselines() {
		hang := make(chan struct{})
		t.Cleanup(func() { close(hang) })
		env := &sandboxtest.Env{Fire: func() {}, Hang: func() { <-hang }, Now: time.Now}
		rep := conformance.Run(t.Context(), target(func(p sandbox.Provider) sandbox.Provider { return s.Wrap(p, env) }), once(report.Nine))
		if rep.ExitCode == report.ExitConformant || rep.Verdict == report.Conformant {
			t.Errorf("%s (%s): %s, exit %d", s.ID, s.Fault, rep.Verdict, rep.ExitCode)
		}
		var table strings.Builder
		if err := report.Table(&table, rep, false); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s %s\n", s.ID, s.Fault)
		for line := range strings.Lines(table.String()) {
			for _, word := range []string{"verdict ", "why ", "nine ", "exit code "} {
				if strings.HasPrefix(line, word) {
					out.WriteString("  " + drawn.ReplaceAllString(line, "*"))
				}
			}
		}
		data, err := report.JUnit(rep)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := report.Count(rep.Rows(), report.Fail) + report.Count(rep.Rows(), report.Overclaim); strings.Count(string(data), "<failure ") != wrong {
			t.Errorf("%s: %d failed, %d <failure>", s.ID, wrong, strings.Count(string(data), "<failure "))
		}
	}
	const golden = "testdata/dumb.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != out.String() {
		t.Errorf("%s differs (-update writes it): %v\n%s", golden, err, out.String())
	}
}

// TestEnvelopeThatDoesNotCome: however the first question fails, the run ends
// and says where.
func TestEnvelopeThatDoesNotCome(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	var asked atomic.Int64
	for name, c := range map[string]struct {
		capabilities func(ctx context.Context, p sandbox.Provider) (sandbox.Capabilities, error)
		code         int64
		reason       string
		plan         bool
	}{
		"hangs": {func(context.Context, sandbox.Provider) (sandbox.Capabilities, error) {
			<-hang
			return sandbox.Capabilities{}, nil
		}, report.ExitError, "did not answer", false},
		"panics": {func(context.Context, sandbox.Provider) (sandbox.Capabilities, error) { panic("no envelope") }, report.ExitError, "no envelope", false},
		"errs": {func(context.Context, sandbox.Provider) (sandbox.Capabilities, error) {
			return sandbox.Capabilities{}, errors.New("connection refused")
		}, report.ExitError, "connection refused", false},
		"is invalid": {func(context.Context, sandbox.Provider) (sandbox.Capabilities, error) {
			return sandbox.Capabilities{}, nil
		}, report.ExitFail, "envelope.valid", false},
		"changes": {func(ctx context.Context, p sandbox.Provider) (sandbox.Capabilities, error) {
			c, err := p.Capabilities(ctx)
			c.MaxMounts -= asked.Add(1)
			return c, err
		}, report.ExitFail, "envelope.unchanging", true},
	} {
		wrap := func(p sandbox.Provider) sandbox.Provider {
			return sandboxtest.Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) { return c.capabilities(ctx, p) }}
		}
		o := once(report.Nine)
		if name == "hangs" {
			o.Patience = 100 * time.Millisecond
		}
		rep := conformance.Run(t.Context(), target(wrap), o)
		text, err := report.Encode(rep)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if rep.ExitCode != c.code || !strings.Contains(string(text), c.reason) || rep.Reason == "" {
			t.Errorf("%s: %s, exit %d: %s", name, rep.Verdict, rep.ExitCode, rep.Reason)
		}
		if _, err := conformance.Plan(t.Context(), target(wrap), o); (err == nil) != c.plan {
			t.Errorf("%s: plan: %v", name, err)
		}
	}
	if _, err := conformance.Plan(t.Context(), conformance.Target{}, once()); err == nil {
		t.Error("a plan of no provider")
	}
}

// TestTwoRunsAtOnce keep apart: ids, transcript, verdict.
func TestTwoRunsAtOnce(t *testing.T) {
	var wait sync.WaitGroup
	reports := make([]report.Report, 2)
	for i := range reports {
		wait.Go(func() {
			o := once()
			o.Seed, o.Transcript = "", &report.Transcript{}
			var started, ended atomic.Int64
			o.Started = func(s conformance.Step) {
				if s.Done != int(started.Add(1))-1 || s.Done >= s.Total || s.Pass != 1 || s.Passes != 1 {
					t.Errorf("step %+v", s)
				}
			}
			o.Progress = func(report.Row) { ended.Add(1) }
			reports[i] = conformance.Run(t.Context(), target(nil), o)
			if started.Load() != ended.Load() {
				t.Errorf("%d started, %d ended", started.Load(), ended.Load())
			}
		})
	}
	wait.Wait()
	a, b := reports[0], reports[1]
	if a.Verdict != report.Conformant || b.Verdict != report.Conformant {
		t.Errorf("%s (%s), %s (%s)", a.Verdict, a.Reason, b.Verdict, b.Reason)
	}
	if a.Run.Nonce == b.Run.Nonce || a.TranscriptDigest == b.TranscriptDigest {
		t.Error("two runs are the same")
	}
}

// TestSeedDrawsTheSame: a probe that is run alone draws what it drew among
// others.
func TestSeedDrawsTheSame(t *testing.T) {
	requests := func(only ...string) []string {
		o := once(report.Nine)
		o.Only, o.Transcript = only, &report.Transcript{}
		conformance.Run(t.Context(), target(nil), o)
		var found []string
		for _, line := range o.Transcript.Lines() {
			if s := string(line); strings.Contains(s, `"probe":"stage-git-project"`) && strings.Contains(s, `"operation":"provision"`) {
				_, request, _ := strings.Cut(s, `"request":`)
				_, lease, _ := strings.Cut(request, "lease_id")
				lease, _, _ = strings.Cut(lease, ",")
				found = append(found, lease)
			}
		}
		return found
	}
	all, alone := requests(), requests("stage-git-project")
	if len(all) == 0 || !slices.Equal(all, alone) {
		t.Errorf("among others %v, alone %v", all, alone)
	}
}

// TestMatrixCounts what its text says.
func TestMatrixCounts(t *testing.T) {
	m := conformance.Matrix()
	var total, killed int64
	for line := range strings.Lines(conformance.MatrixText()) {
		if strings.HasPrefix(line, "saboteur\t") {
			total++
			if strings.HasSuffix(strings.TrimSpace(line), "\tkilled") {
				killed++
			}
		}
	}
	if m.Total != total || m.Killed != killed || len(m.MatrixDigest) != len("sha256:")+64 {
		t.Errorf("%+v, the text has %d and %d", m, total, killed)
	}
}

// TestExplainKnowsTheList and nothing else.
func TestExplainKnowsTheList(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range conformance.List() {
		got, ok := conformance.Explain(row.ID)
		if !ok || got.Title == "" || got.Source == "" || got.Clause == "" || seen[row.ID] {
			t.Errorf("%s: %v %+v", row.ID, ok, got)
		}
		seen[row.ID] = true
	}
	if _, ok := conformance.Explain("no-such"); ok || len(seen) < 9 {
		t.Errorf("%d rows", len(seen))
	}
}
