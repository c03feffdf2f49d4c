package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// unreliable is a link as one would rather not have it: one exchange in so many
// goes wrong in any way that a network has. Noise inside of a body is not among
// them, because it is told from a network's doing.
func unreliable(seed uint64, rate float64) faultproxy.Script {
	any := faultproxy.Seeded(seed, rate, 64<<10,
		faultproxy.Refuse, faultproxy.CutRequest, faultproxy.CutResponse, faultproxy.Lose, faultproxy.Untyped, faultproxy.Double,
		faultproxy.Echo, faultproxy.HalfClose, faultproxy.Stall, faultproxy.Drip, faultproxy.Stale)
	return func(e faultproxy.Exchange) faultproxy.Fault {
		f := any(e)
		if f.Kind == faultproxy.Lose && e.Path != wire.ProcessStream.Path() {
			f.After = 0 // the server answers whole
		}
		if f.Kind == faultproxy.Drip {
			f.After = min(f.After, 512)
		}
		return f
	}
}

// The suites say of the reference provider across a link that breaks all the
// time what they say of it in the same process.
func TestSuitesSayTheSameAcrossAnUnreliableLink(t *testing.T) {
	settled(t)
	options := conformance.Options{Passes: 1, StreamBytes: 4 << 20, Seed: "unreliable",
		Suites: []report.Suite{report.Nine, report.Contract, report.Files, report.Live, report.Faults}}
	rows := func(target conformance.Target) map[string]report.Row {
		all := map[string]report.Row{}
		r := conformance.Run(t.Context(), target, options)
		for _, row := range r.Rows() {
			all[row.ID] = row
		}
		return all
	}
	target, _ := oracle.New("unreliable")
	bare := rows(target)
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		target, p := oracle.New("unreliable")
		l := serve(t, p).connect(unreliable(seed, 0.2), func(o *client.Options) {
			o.Lease = wire.Lease{} // the suites bring their own
			o.Deadline = 30 * time.Second
		})
		target.Provider = sandbox.Provider(l)
		began := time.Now()
		passed := 0
		for id, row := range rows(target) {
			want := bare[id]
			if row.Status == report.Pass {
				passed++
			}
			if overtaken(row) {
				t.Logf("seed %d: %s was overtaken", seed, id)
				continue
			}
			if row.Status != want.Status || row.Reason != want.Reason {
				t.Errorf("seed %d: %s: %s %s, bare %s %s: %+v", seed, id, row.Status, row.Reason, want.Status, want.Reason, row.Findings)
			}
		}
		if left := p.Census(); len(left) > 0 {
			t.Errorf("seed %d: left: %v", seed, left)
		}
		t.Logf("seed %d: %d of %d rows pass in %v; %d exchanges, faults %v",
			seed, passed, len(bare), time.Since(began).Round(time.Millisecond), l.proxy.Exchanges(), l.proxy.Faults())
		if passed < 60 {
			t.Errorf("seed %d: %d pass", seed, passed)
		}
	}
}

// overtaken says that a process which writes without end was ended by name
// while its reader was cut off: the window is a bound, not a brake.
func overtaken(row report.Row) bool {
	for _, f := range row.Findings {
		if !strings.Contains(f.Got, wire.ReasonOutputTruncated) {
			return false
		}
	}
	return len(row.Findings) > 0
}
