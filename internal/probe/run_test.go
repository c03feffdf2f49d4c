package probe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// one makes a probe of the nine, so that a run of it alone has a verdict.
func one(id string, run func(*probe.T), requires ...report.Token) probe.Probe {
	return probe.Probe{ID: id, Suite: report.Nine, Requires: requires, Run: run}
}

func run(t *testing.T, target probe.Target, o probe.Options, probes ...probe.Probe) report.Report {
	t.Helper()
	if o.Suites == nil {
		o.Suites = []report.Suite{report.Nine}
	}
	return probe.Run(t.Context(), target, probes, o)
}

func find(t *testing.T, rep report.Report, id string) report.Row {
	t.Helper()
	for _, row := range rep.Rows() {
		if row.ID == id {
			return row
		}
	}
	t.Fatalf("no row %s", id)
	return report.Row{}
}

// TestStatuses: how a probe ends decides its row, the verdict and the exit
// code.
func TestStatuses(t *testing.T) {
	held := func(t *probe.T) { t.Check("holds", true, "", nil) }
	for name, c := range map[string]struct {
		run      func(*probe.T)
		requires []report.Token
		change   func(*probe.Target)
		want     report.Status
		exit     int64
	}{
		"pass":               {run: held, want: report.Pass, exit: report.ExitConformant},
		"fail":               {run: func(t *probe.T) { t.Check("holds", false, "a", "b") }, want: report.Fail, exit: report.ExitFail},
		"fail and go on":     {run: func(t *probe.T) { t.Check("holds", false, "a", "b"); held(t) }, want: report.Fail, exit: report.ExitFail},
		"overclaim":          {run: func(t *probe.T) { t.Served("holds", false, "a", "b") }, want: report.Overclaim, exit: report.ExitFail},
		"worst counts":       {run: func(t *probe.T) { t.Served("a", false, "a", "b"); t.Check("b", false, "a", "b") }, want: report.Overclaim, exit: report.ExitFail},
		"cannot":             {run: func(t *probe.T) { t.Need("x", sandbox.Unavailable("", sandbox.RequireMounts, "", "")) }, want: report.Overclaim, exit: report.ExitFail},
		"member absent":      {run: func(t *probe.T) { t.Need("x", sandbox.Conflict("", "", "list_dir_unsupported")) }, want: report.Overclaim, exit: report.ExitFail},
		"failed":             {run: func(t *probe.T) { t.Need("x", errors.New("no")) }, want: report.Fail, exit: report.ExitFail},
		"control":            {run: func(t *probe.T) { t.Control("alive", true, nil); held(t) }, want: report.Pass, exit: report.ExitConformant},
		"no control":         {run: func(t *probe.T) { t.Control("alive", false, "dead"); held(t) }, want: report.Error, exit: report.ExitError},
		"no control, failed": {run: func(t *probe.T) { t.Check("a", false, "", ""); t.Control("alive", false, "dead") }, want: report.Error, exit: report.ExitError},
		"panic":              {run: func(*probe.T) { panic("oops") }, want: report.Error, exit: report.ExitError},
		"asserts nothing":    {run: func(*probe.T) {}, want: report.Error, exit: report.ExitError},
		"not here":           {run: func(t *probe.T) { t.NotHere("no such thing") }, want: report.Skip, exit: report.ExitIncomplete},
		"token absent":       {run: held, requires: []report.Token{"no-such-token"}, want: report.Skip, exit: report.ExitIncomplete},
		"token withheld": {run: held, requires: []report.Token{report.ZDR}, want: report.Withheld, exit: report.ExitIncomplete,
			change: func(t *probe.Target) { t.Withhold = []report.Token{report.ZDR} }},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := oracle.New(name)
			if c.change != nil {
				c.change(&target)
			}
			rep := run(t, target, probe.Options{}, one("case", c.run, c.requires...))
			if row := find(t, rep, "case"); row.Status != c.want || rep.ExitCode != c.exit {
				t.Errorf("%s, exit %d (%s), want %s, exit %d: %v", row.Status, rep.ExitCode, rep.Reason, c.want, c.exit, row.Findings)
			}
		})
	}
}

// destroyed notes the ids that a target is told to destroy.
type destroyed struct {
	mu  sync.Mutex
	ids []string
}

func (d *destroyed) over(p sandbox.Provider) sandboxtest.Override {
	return sandboxtest.Override{Provider: p,
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error {
			d.mu.Lock()
			d.ids = append(d.ids, string(id))
			d.mu.Unlock()
			return p.Destroy(ctx, id)
		},
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			d.mu.Lock()
			d.ids = append(d.ids, string(id))
			d.mu.Unlock()
			return p.DestroySnapshot(ctx, id)
		}}
}

// TestOnlyItsOwn: what a probe allocated goes when it ends, however it ends and
// whatever the value that came with it said; what somebody else has there is
// never named to the target.
func TestOnlyItsOwn(t *testing.T) {
	for name, end := range map[string]func(*probe.T, *probe.Machine){
		"by itself": func(t *probe.T, m *probe.Machine) { t.Check("x", true, "", nil) },
		"by a stop": func(t *probe.T, m *probe.Machine) { t.Fatal("x", "", "") },
		"by panic":  func(t *probe.T, m *probe.Machine) { panic("oops") },
		"destroyed before": func(t *probe.T, m *probe.Machine) {
			t.Need("x", t.Provider().Destroy(t.Context(), m.ID))
		},
		"with a snapshot": func(t *probe.T, m *probe.Machine) {
			h, err := t.Provider().Snapshot(t.Context(), m.ID, sandbox.SnapshotRequest{ExpiresAt: m.Request.ExpiresAt})
			t.Need("snapshot", err)
			_ = h
		},
	} {
		t.Run(name, func(t *testing.T) {
			target, p := oracle.New(name)
			var theirs sandbox.InstanceID
			foreign := run(t, target, probe.Options{Passes: 1}, one("case", func(t *probe.T) { t.Machine(probe.Shape{}); t.Check("x", true, "", nil) }))
			if foreign.ExitCode != 0 {
				t.Fatal(foreign.Reason)
			}
			// Somebody else's, made beside the engine.
			var d destroyed
			probes := []probe.Probe{one("case", func(t *probe.T) {
				if theirs == "" {
					h, err := p.Provision(t.Context(), t.Request(probe.Shape{}))
					t.Need("theirs", err)
					theirs = h.Value.InstanceID
				}
				end(t, t.Machine(probe.Durable(probe.Shape{})))
			})}
			target.Provider = d.over(p)
			target.Census = nil
			rep := run(t, target, probe.Options{}, probes...)
			if got := p.Census(); !slices.Equal(got, []string{string(theirs)}) {
				t.Errorf("left: %v, theirs is %s", got, theirs)
			}
			if slices.Contains(d.ids, string(theirs)) {
				t.Error("somebody else's instance was destroyed")
			}
			if rep.Leaks.Allocated == 0 || rep.Leaks.Allocated != rep.Leaks.Destroyed {
				t.Errorf("%+v", rep.Leaks)
			}
		})
	}
}

// TestLeaks: a teardown that fails, that does nothing, or that a census sees
// through is exit code 5.
func TestLeaks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *probe.Target, p sandbox.Provider)
		what   func(report.Leaks) []string
	}{
		"destroy fails": {func(t *probe.Target, p sandbox.Provider) {
			t.Provider = sandboxtest.Override{Provider: p, DestroyFunc: func(context.Context, sandbox.InstanceID) error {
				return sandbox.Failed(sandbox.OpDestroy, sandbox.ReasonProviderError, nil)
			}}
		}, func(l report.Leaks) []string { return l.Undestroyed }},
		"destroy does nothing": {func(t *probe.Target, p sandbox.Provider) {
			t.Provider = sandboxtest.Override{Provider: p, DestroyFunc: func(context.Context, sandbox.InstanceID) error { return nil }}
		}, func(l report.Leaks) []string { return l.Census }},
		"swept afterwards": {func(t *probe.Target, p sandbox.Provider) {
			var last sandbox.InstanceID
			t.Provider = sandboxtest.Override{Provider: p,
				DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error { last = id; return p.Destroy(ctx, id) },
				CleanupFunc: func(context.Context, sandbox.CleanupRequest) (sandbox.Swept, error) {
					return sandbox.Swept{InstanceIDs: []sandbox.InstanceID{last}, SnapshotIDs: []sandbox.SnapshotID{}}, nil
				}}
		}, func(l report.Leaks) []string { return l.SecondSweep }},
	} {
		t.Run(name, func(t *testing.T) {
			target, p := oracle.New(name)
			c.change(&target, p)
			rep := run(t, target, probe.Options{Passes: 1, Linger: time.Millisecond}, one("case", func(t *probe.T) { t.Machine(probe.Shape{}) }))
			if rep.ExitCode != report.ExitLeak || len(c.what(rep.Leaks)) != 1 {
				t.Errorf("exit %d, %s: %+v", rep.ExitCode, rep.Reason, rep.Leaks)
			}
		})
	}
}

// TestSeed: the same seed draws the same ids, nonces and order; another does
// not, and neither do two passes.
func TestSeed(t *testing.T) {
	draw := func(seed string) []string {
		var drawn []string
		var probes []probe.Probe
		for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
			probes = append(probes, one(id, func(t *probe.T) {
				drawn = append(drawn, id, t.Nonce(), t.Session(), t.Workspace(), t.Request(probe.Shape{}).RunID)
				t.Check("x", true, "", nil)
			}))
		}
		target, _ := oracle.New(seed)
		if rep := run(t, target, probe.Options{Seed: seed}, probes...); rep.Run.Seed != seed && seed != "" {
			t.Errorf("seed %q", rep.Run.Seed)
		}
		return drawn
	}
	first := draw("one")
	if !slices.Equal(first, draw("one")) {
		t.Error("the same seed drew something else")
	}
	if slices.Equal(first, draw("two")) || slices.Equal(draw(""), draw("")) {
		t.Error("another seed drew the same")
	}
	half := len(first) / 2
	if slices.Equal(first[:half], first[half:]) {
		t.Error("the second pass is the first")
	}
	if first[2] == first[half+2] || first[3] == first[half+3] {
		t.Error("both passes have one Session or Workspace")
	}
}

// TestTranscript: every call is a line of the chain, a row names its lines, and
// neither an environment value nor a file's bytes are in it.
func TestTranscript(t *testing.T) {
	target, _ := oracle.New("transcript")
	var tr report.Transcript
	const secret = "s3cr3t-value"
	rep := run(t, target, probe.Options{Transcript: &tr, Passes: 1}, one("case", func(t *probe.T) {
		m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{{MountPath: "/workspace/a", Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}},
			Files: []sandbox.FileWrite{{Path: "/workspace/a/f", Content: []byte(secret)}}})
		c := probe.Command("cat; cat /workspace/a/f")
		c.Environment["TOKEN"], c.Stdin = secret, []byte(secret)
		t.Check("came", strings.Contains(string(m.Run(c).Stdout), secret), secret, "")
	}))
	row := find(t, rep, "case")
	if row.Status != report.Pass || len(row.Transcript) != 2 || row.Transcript[1]-row.Transcript[0] != 3 {
		t.Errorf("%s %v", row.Status, row.Transcript)
	}
	text := tr.Encode()
	if err := report.VerifyTranscript(strings.NewReader(string(text)), rep.TranscriptDigest); err != nil {
		t.Error(err)
	}
	for _, member := range []string{"provision", "write_file", "activate", "execute"} {
		if !strings.Contains(string(text), `"operation":"`+member+`"`) {
			t.Errorf("no line for %s", member)
		}
	}
	if strings.Contains(string(text), secret) {
		t.Error("the secret is in the transcript")
	}
}

// TestClosedReadMayLeaveOutOneToken: of a provider whose readFile fails closed
// filesystem may be left out, and nothing else beside it; of one that reads, not
// even that.
func TestClosedReadMayLeaveOutOneToken(t *testing.T) {
	held := func(t *probe.T) { t.Check("holds", true, "", nil) }
	for name, c := range map[string]struct {
		closed   bool
		withhold []report.Token
		want     report.Status
		names    string
	}{
		"closed":                   {true, []report.Token{report.Filesystem}, report.Skip, "readFile fails closed"},
		"closed, and more":         {true, []report.Token{report.Filesystem, report.Process}, report.Withheld, "process"},
		"closed, and another case": {true, []report.Token{report.Filesystem, report.ZDR}, report.Skip, "readFile fails closed"},
		"reads":                    {false, []report.Token{report.Filesystem}, report.Withheld, "filesystem"},
		"closed, nothing hidden":   {true, nil, report.Pass, ""},
	} {
		t.Run(name, func(t *testing.T) {
			target, p := oracle.New(name)
			target.Withhold = c.withhold
			if c.closed {
				target.Provider = sandboxtest.ClosedReads(p)
			}
			row := find(t, run(t, target, probe.Options{}, one("case", held, report.Filesystem, report.Process)), "case")
			if row.Status != c.want || !strings.Contains(row.Reason, c.names) {
				t.Errorf("%s: %s", row.Status, row.Reason)
			}
		})
	}
}
