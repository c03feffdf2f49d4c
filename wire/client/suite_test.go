package client_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
)

// across is p behind a real server on a socket of its own.
func across(t *testing.T, p sandbox.Provider) *client.Client {
	s, err := server.New(server.Options{Provider: p, Authenticate: server.Anybody, Log: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	base := "unix:" + filepath.Join(t.TempDir(), "s")
	l, err := server.Listen(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: s}
	go h.Serve(l)
	t.Cleanup(func() {
		h.Close()
		s.Close(t.Context())
	})
	c, err := client.Dial(t.Context(), client.Options{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The suites say of the reference provider through the wire what they say of it
// without one.
func TestSuitesThroughTheWire(t *testing.T) {
	options := conformance.Options{Passes: 1, StreamBytes: 4 << 20, Seed: "wire",
		Suites: []report.Suite{report.Nine, report.Contract, report.Files, report.Live, report.Faults}}
	if testing.Short() { // the whole is too slow for the race detector
		options.Suites = []report.Suite{report.Nine, report.Live}
	}
	run := func(through func(sandbox.Provider) sandbox.Provider) map[string]report.Row {
		target, p := oracle.New("wire")
		target.Provider = through(p)
		r := conformance.Run(t.Context(), target, options)
		rows := map[string]report.Row{}
		for _, row := range r.Rows() {
			rows[row.ID] = row
		}
		return rows
	}
	bare := run(func(p sandbox.Provider) sandbox.Provider { return p })
	wired := run(func(p sandbox.Provider) sandbox.Provider { return across(t, p) })
	passed := 0
	for id, b := range bare {
		w := wired[id]
		if w.Status != b.Status {
			t.Errorf("%s: %s, bare %s %s %+v", id, w.Status, b.Status, w.Reason, w.Findings)
		}
		if w.Status == report.Pass {
			passed++
		}
	}
	t.Logf("%d rows, %d pass", len(wired), passed)
	if len(wired) != len(bare) || passed < 40 {
		t.Errorf("%d rows, bare %d, %d pass", len(wired), len(bare), passed)
	}
}
