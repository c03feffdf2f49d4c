package conformance

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/conformancetest"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

const token = "parity-0123456789abcdef0123456789abcdef"

// wired serves a provider at address, by the product's own server, and is a
// client of it. dir holds the journal.
func wired(t *testing.T, p sandbox.Provider, address, dir string) *client.Client {
	t.Helper()
	s, err := server.New(server.Options{Provider: p, Journal: logstore.At(dir), Tokens: []string{token}, Log: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, s, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	base := address
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		base = "http://" + tcp.String()
	}
	c, err := client.Dial(t.Context(), client.Options{Base: base, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// throughRunner puts the Runner's own checks in front of a target.
func throughRunner(t *testing.T, target conformance.Target) conformance.Target {
	t.Helper()
	adapter := sandboxruntime.Adapter{Provider: target.Provider, Remote: target.Remote}
	r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{adapter}, Clock: target.Clock}.Attach(t.Context(), envelope(t, target).Target())
	if err != nil {
		t.Fatal(err)
	}
	target.Provider, target.ThroughRunner = r.Provider(), true
	if target.Restart != nil {
		target.Restart = func(context.Context) (sandbox.Provider, error) { return target.Provider, nil }
	}
	return target
}

// TestMemoryParity: the reference provider has the outcomes that it has bare
// through the Runner, over the wire, and over the wire through the Runner too.
func TestMemoryParity(t *testing.T) {
	t.Parallel()
	o := conformance.Options{Suites: report.Suites(), StreamBytes: 16 << 20, Passes: 1}
	for name, of := range map[string]func(*testing.T, conformance.Target) conformance.Target{
		"runner": throughRunner,
		"wire":   overHTTP,
		"wire-runner": func(t *testing.T, target conformance.Target) conformance.Target {
			return throughRunner(t, overHTTP(t, target))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, _ := oracle.New("parity-" + name)
			conformancetest.Golden(t, of(t, target), o, "../../conformance/conformancetest/testdata/memory.golden")
		})
	}
}

func overHTTP(t *testing.T, target conformance.Target) conformance.Target {
	target.Provider, target.Remote = wired(t, target.Provider, "127.0.0.1:0", ""), true
	c := target.Provider
	target.Restart = func(context.Context) (sandbox.Provider, error) { return c, nil }
	return target
}

// TestNativeOverTheWire: both drivers, served as checkfu provider serve does it,
// have the outcomes in the nine cases that they have bare, through the Runner
// too; the quicker one also in the contract suite.
func TestNativeOverTheWire(t *testing.T) {
	t.Parallel()
	for _, name := range []string{all.NativeRunsc, all.NativeRunc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := open(t, name)
			bare := target.Provider
			dir := t.TempDir()
			target.Provider, target.Remote = wired(t, all.Served(bare), "unix:"+filepath.Join(dir, "s"), filepath.Join(dir, "journal")), true
			o := conformance.Options{Suites: []report.Suite{report.Nine}, Patience: 2 * time.Minute, Passes: 1}
			if name == all.NativeRunc {
				o.Suites = conformance.DefaultSuites()
			}
			same(t, target, o, "testdata/native-bare.golden")
			o.Suites = []report.Suite{report.Nine}
			same(t, throughRunner(t, target), o, "testdata/native-runner.golden")
		})
	}
}

// same runs a part of what a golden file has the outcomes of, and compares that
// part: all but the standing checks, which depend on what was run.
func same(t *testing.T, target conformance.Target, o conformance.Options, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rep := conformance.Run(t.Context(), target, o)
	if !rep.Leaks.None() {
		t.Errorf("left behind: %+v", rep.Leaks)
	}
	golden, compared := strings.Split(string(data), "\n"), 0
	for line := range strings.Lines(conformancetest.Outcomes(rep)) {
		if strings.HasPrefix(line, "standing\t") && strings.Contains(line, "\tskip\t") {
			continue
		}
		compared++
		if !slices.Contains(golden, strings.TrimSuffix(line, "\n")) {
			t.Errorf("not in %s: %s", file, line)
		}
	}
	for _, row := range rep.Rows() {
		for _, f := range row.Findings {
			t.Errorf("%s: %s %s: expected %s, got %s", row.ID, f.Check, f.Field, f.Expected, f.Got)
		}
	}
	t.Logf("%d outcomes as in %s, %d ms", compared, file, rep.Run.Milliseconds)
}

// TestAStrangersClaimIsAnOverclaim: what is served as it is claims to be the
// Runner, and nobody at the other end of a wire is.
func TestAStrangersClaimIsAnOverclaim(t *testing.T) {
	t.Parallel()
	target, _ := oracle.New("overclaim")
	p := claiming{target.Provider}
	target.Provider, target.Remote = wired(t, p, "127.0.0.1:0", ""), true
	rep := conformance.Run(t.Context(), target, conformance.Options{Suites: []report.Suite{report.Nine}, Passes: 1})
	if len(rep.Ceiling) != len(sandbox.Axes()) {
		t.Errorf("narrowed %+v", rep.Ceiling)
	}
	for _, row := range rep.Rows() {
		if want := report.Overclaim; row.ID == "envelope.ceiling" && row.Status != want {
			t.Errorf("%s: %s, want %s", row.ID, row.Status, want)
		}
	}
	if rep.ExitCode != 1 {
		t.Errorf("exit %d", rep.ExitCode)
	}
	// The same one, served as ours are, claims nothing that it may not.
	target.Provider = wired(t, all.Served(p), "127.0.0.1:0", "")
	rep = conformance.Run(t.Context(), target, conformance.Options{Suites: []report.Suite{report.Nine}, Passes: 1})
	if len(rep.Ceiling) > 0 || rep.ExitCode != 0 {
		t.Errorf("exit %d, narrowed %+v", rep.ExitCode, rep.Ceiling)
	}
}

type claiming struct{ sandbox.Provider }

func (c claiming) Capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	e, err := c.Provider.Capabilities(ctx)
	e.Enforcement = sandbox.EnforcedBy(sandbox.RunnerEnforced)
	return e, err
}
