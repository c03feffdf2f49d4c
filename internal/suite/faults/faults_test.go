package faults_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/faults"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/sandboxtest"
)

// claiming is the oracle with another custody of its snapshots. They survive
// its restart, which is none.
func claiming(p sandbox.Provider, c sandbox.Custody) sandbox.Provider {
	return sandboxtest.Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
		envelope, err := p.Capabilities(ctx)
		envelope.SnapshotCustody = c
		return envelope, err
	}}
}

func TestOraclePassesEveryDrill(t *testing.T) {
	for _, custody := range []sandbox.Custody{sandbox.CustodyRunner, sandbox.CustodyProvider} {
		t.Run(string(custody), func(t *testing.T) {
			target, p := oracle.New("drills")
			target.Provider = claiming(p, custody)
			target.Restart = func(context.Context) (sandbox.Provider, error) { return claiming(p, custody), nil }
			rep := probe.Run(t.Context(), target, faults.Probes(), probe.Options{Suites: []report.Suite{report.Faults}, Seed: "drills"})
			for _, row := range rep.Probes {
				if row.Status != report.Pass {
					t.Errorf("%s: %s %s %+v", row.ID, row.Status, row.Reason, row.Findings)
				}
			}
			for _, row := range rep.Standing {
				if row.Status != report.Pass && row.Status != report.Skip {
					t.Errorf("%s: %s %+v", row.ID, row.Status, row.Findings)
				}
			}
			if !rep.Leaks.None() || len(p.Census()) > 0 || len(rep.Leaks.Unknown) > 0 {
				t.Errorf("left: %+v %v", rep.Leaks, p.Census())
			}
		})
	}
}

// A provider that claims little is asked little: no drill fails for what the
// envelope does not give.
func TestDrillsHeedTheEnvelope(t *testing.T) {
	target, p := oracle.New("little")
	target.Provider = sandboxtest.Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
		c, err := p.Capabilities(ctx)
		c.Snapshots, c.SnapshotClone, c.RetentionModes = false, false, []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
		c.NetworkModes, c.MaxMounts, c.ActiveMountWrite = []sandbox.NetworkMode{sandbox.NetworkNone}, 0, false
		return c, err
	}, Members: func(o *sandbox.Optional) { *o = sandbox.Optional{ListDir: o.ListDir} }}
	target.Restart, target.Census = nil, nil
	rep := probe.Run(t.Context(), target, faults.Probes(), probe.Options{Suites: []report.Suite{report.Faults}, Seed: "little", Passes: 1})
	passed := 0
	for _, row := range rep.Probes {
		switch row.Status {
		case report.Pass:
			passed++
		case report.Skip:
		default:
			t.Errorf("%s: %s %s %+v", row.ID, row.Status, row.Reason, row.Findings)
		}
	}
	if passed < 10 {
		t.Errorf("only %d drills ran", passed)
	}
	if left := p.Census(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestDrillsAreWellFormed(t *testing.T) {
	id, clause := regexp.MustCompile(`^[a-z-]+\.[a-z-]+$`), regexp.MustCompile(`^CF-FA-[0-9]{2}$`)
	seen := map[string]bool{}
	for _, p := range faults.Probes() {
		if !id.MatchString(p.ID) || !clause.MatchString(p.Clause) || seen[p.ID] || seen[p.Clause] || p.Title == "" || p.Source == "" || len(p.Requires) == 0 {
			t.Errorf("%+v", p)
		}
		seen[p.ID], seen[p.Clause] = true, true
	}
}
