package wire_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suitecheck"
	"github.com/checkfu/checkfu/sandboxtest"
	"github.com/checkfu/checkfu/wire"
)

// Whoever is right passes everything: the reference provider behind the real
// server, also where that holds no call for longer than it must.
func TestTheRightServerPasses(t *testing.T) {
	for _, s := range []sandboxtest.Saboteur{{ID: "right"}, {ID: "hasty", Serve: hasty}} {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			rep, _ := suitecheck.Run(t.Context(), s, "", report.Wire)
			for _, row := range rep.Rows() {
				if row.Suite == report.Wire {
					t.Logf("%-32s %-6s %5d ms %s", row.ID, row.Status, row.Milliseconds, row.Reason)
					if row.Status != report.Pass {
						t.Errorf("%s: %s %+v", row.ID, row.Status, row.Findings)
					}
				}
			}
			if !rep.Leaks.None() {
				t.Errorf("left: %+v", rep.Leaks)
			}
		})
	}
}

// hasty answers every operation that is asked for as usual with a 202, and holds
// questions for 5 ms.
func hasty(h http.Handler, _ *sandboxtest.Env) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := r.Header[wire.HeaderWait]; len(wait) == 1 && wait[0] == strconv.Itoa(wire.DefaultWaitMS) {
			r.Header.Set(wire.HeaderWait, "0")
		}
		switch r.URL.Path {
		case wire.ProcessWait.Path():
			shorten(r, func(m *wire.WaitRequest) { m.WaitMS = min(m.WaitMS, 5) })
		case wire.PollOperation.Path():
			shorten(r, func(m *wire.OperationRequest) { m.WaitMS = min(m.WaitMS, 5) })
		}
		h.ServeHTTP(w, r)
	})
}

// shorten changes a request that can be read.
func shorten[M wire.Message](r *http.Request, change func(*M)) {
	body, _ := io.ReadAll(r.Body) // half of one is refused behind us
	if m, err := wire.Decode[M](body); err == nil {
		change(&m)
		body, _ = wire.Encode(m) // what was decoded has a form
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}
