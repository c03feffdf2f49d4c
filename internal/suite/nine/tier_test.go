package nine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/nine"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// TestTiersSkipAsPredicted runs the tiers that the documents count.
func TestTiersSkipAsPredicted(t *testing.T) {
	snapshots := []string{"checkpoint-clone", "durable-round-trip", "pause-pinning"}
	dayOne := append([]string{"allowlist-egress"}, snapshots...)
	for _, c := range []struct {
		name  string
		tier  func(sandbox.Provider) sandbox.Provider
		skips []string
	}{
		{"day one", sandboxtest.DayOne, dayOne},
		{"minimum", sandboxtest.Minimum, append([]string{"stage-seal-execute", "stage-git-project"}, dayOne...)},
		{"docker", sandboxtest.DockerPosture, []string{"allowlist-egress"}},
		{"one mount", func(p sandbox.Provider) sandbox.Provider {
			return sandboxtest.Reduce(p, func(c *sandbox.Capabilities) { c.MaxMounts = 1 })
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, p := oracle.New(c.name)
			target.Provider = c.tier(p)
			rep := run(target, "")
			if rep.ExitCode != report.ExitConformant {
				t.Errorf("exit %d: %s", rep.ExitCode, rep.Reason)
			}
			for _, row := range rep.Cases {
				want := report.Pass
				if slices.Contains(c.skips, row.ID) {
					want = report.Skip
				}
				if row.Status != want || want == report.Skip && !strings.Contains(row.Reason, "the envelope does not give it") {
					t.Errorf("%s: %s (%s) %+v, want %s", row.ID, row.Status, row.Reason, row.Findings, want)
				}
			}
			if left := p.Census(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestFilesystemToken runs the one token that the contract lets a target leave
// out, and what it costs to keep it.
func TestFilesystemToken(t *testing.T) {
	const closed = "readFile fails closed"
	for _, c := range []struct {
		name     string
		closed   bool
		withhold []report.Token
		seal     report.Status
		git      report.Status
		exit     int64
		reason   string
	}{
		{"open and declared", false, nil, report.Pass, report.Pass, report.ExitConformant, ""},
		{"open and withheld", false, []report.Token{report.Filesystem}, report.Withheld, report.Withheld, report.ExitIncomplete, "withheld by the target"},
		{"closed and withheld", true, []report.Token{report.Filesystem}, report.Skip, report.Skip, report.ExitConformant, closed},
		{"closed and declared", true, nil, report.Fail, report.Pass, report.ExitFail, ""},
		{"closed and more withheld than may be", true, []report.Token{report.Filesystem, report.Process}, report.Withheld, report.Withheld, report.ExitIncomplete, "withheld by the target"},
	} {
		t.Run(c.name, func(t *testing.T) {
			target, p := oracle.New(c.name)
			target.Withhold = c.withhold
			if c.closed {
				target.Provider = sandboxtest.ClosedReads(p)
			}
			rep := run(target, "")
			if rep.ExitCode != c.exit {
				t.Errorf("exit %d, want %d: %s", rep.ExitCode, c.exit, rep.Reason)
			}
			for _, row := range rep.Cases {
				switch row.ID {
				case "stage-seal-execute":
					if row.Status != c.seal || !strings.Contains(row.Reason, c.reason) {
						t.Errorf("%s: %s (%s), want %s", row.ID, row.Status, row.Reason, c.seal)
					}
					for _, check := range row.Checks {
						if (check.Status != report.Pass) != (check.ID == "read-file" && c.seal == report.Fail) {
							t.Errorf("half %s: %s", check.ID, check.Status)
						}
					}
				case "stage-git-project":
					if row.Status != c.git || !strings.Contains(row.Reason, c.reason) {
						t.Errorf("%s: %s (%s), want %s", row.ID, row.Status, row.Reason, c.git)
					}
				default:
					if row.Status != report.Pass {
						t.Errorf("%s: %s (%s) %+v", row.ID, row.Status, row.Reason, row.Findings)
					}
				}
			}
		})
	}
}

// TestWithoutClone is a provider that keeps snapshots and does not clone them.
func TestWithoutClone(t *testing.T) {
	target, p := oracle.New("clone")
	target.Provider = sandboxtest.Reduce(p, func(c *sandbox.Capabilities) { c.SnapshotClone = false })
	rep := run(target, "")
	row := rep.Cases[2]
	if row.ID != "checkpoint-clone" || row.Status != report.Skip || !strings.Contains(row.Reason, "snapshot_clone is false") || rep.ExitCode != report.ExitConformant {
		t.Errorf("%s: %s (%s) %+v, exit %d", row.ID, row.Status, row.Reason, row.Findings, rep.ExitCode)
	}
}

// TestWithoutDurable has snapshots and no instance of which one may be taken.
func TestWithoutDurable(t *testing.T) {
	target, p := oracle.New("durable")
	target.Provider = sandboxtest.Reduce(p, func(c *sandbox.Capabilities) {
		c.RetentionModes = []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
	})
	rep := run(target, "")
	if n := report.Count(rep.Cases, report.Skip); n != 3 || rep.ExitCode != report.ExitConformant {
		t.Errorf("%d skips, exit %d: %s", n, rep.ExitCode, rep.Reason)
	}
}

// TestNoNetwork has no lab: the egress cases cannot be judged, and that is no
// pass.
func TestNoNetwork(t *testing.T) {
	target, _ := oracle.New("network")
	target.Network = nil
	rep := run(target, "")
	if n := report.Count(rep.Cases, report.Error); n != 2 || rep.ExitCode != report.ExitError {
		t.Errorf("%d errors, exit %d: %s", n, rep.ExitCode, rep.Reason)
	}
}

// TestTheSecondPassSeesWhoKnowsTheFirst is a provider of the day-one tier that
// works for the first Session that it meets. Only another Session can tell.
func TestTheSecondPassSeesWhoKnowsTheFirst(t *testing.T) {
	all := sandboxtest.Saboteurs()
	i := slices.IndexFunc(all, func(s sandboxtest.Saboteur) bool { return s.ID == "V10b" })
	if i < 0 {
		t.Fatal("no V10b")
	}
	for passes, want := range map[int]int64{1: report.ExitConformant, 2: report.ExitFail} {
		target, p := oracle.New("passes")
		target.Provider = sandboxtest.DayOne(all[i].Wrap(p, &sandboxtest.Env{Fire: func() {}, Now: target.Clock.Now}))
		rep := probe.Run(t.Context(), target, nine.Probes(), probe.Options{Passes: passes, Suites: []report.Suite{report.Nine}})
		if rep.ExitCode != want {
			t.Errorf("%d passes: exit %d, want %d: %s", passes, rep.ExitCode, want, rep.Reason)
		}
	}
}
