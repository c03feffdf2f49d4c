// Package conformance runs the conformance suite against the providers that
// need a host: real gVisor, real runc, bare and through the Runner.
package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/conformancetest"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
)

func TestMain(m *testing.M) {
	gvisor.Dispatch()
	if os.Geteuid() != 0 {
		fmt.Println("SKIP conformance: needs root")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// open makes a provider on this host a target, over a state directory of its
// own with a busybox image.
func open(t *testing.T, name string, change ...func(*all.Options)) conformance.Target {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != "/tmp" && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o711); err != nil { // machines run under ids of their own and pass through
			t.Fatal(err)
		}
	}
	store, err := image.Open(filepath.Join(dir, "images"), image.Options{IDBase: native.IDBase})
	if err != nil {
		t.Fatal(err)
	}
	imported, err := store.Import(t.Context(), imagetest.Busybox(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	network, err := lab.OpenInternet()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	guards := native.Egress{Resolver: network.Resolver(), Within: network.Within}
	o := all.Options{Dir: dir, Images: store, Egress: guards}
	for _, c := range change {
		c(&o)
	}
	opened, err := all.Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
		if left := lab.Census(dir); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	census := func(context.Context) ([]string, error) { return lab.Census(dir), nil }
	if o.Warm.Each > 0 {
		census = func(ctx context.Context) ([]string, error) { return claimed(ctx, dir, opened) }
	}
	return conformance.Target{
		Name: "builtin:" + name, Provider: opened.Provider, Image: "busybox@" + imported.Digest, Network: network,
		Census: census,
	}
}

// TestNative: every case whose token the envelope gives passes, the rest are
// skips by name, on both drivers, bare and through the Runner's own checks: of
// the second driver the nine. What they wait for is mostly a clock.
func TestNative(t *testing.T) {
	t.Parallel()
	for _, name := range []string{all.NativeRunsc, all.NativeRunc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := open(t, name)
			o := conformance.Options{Suites: report.Suites(), StreamBytes: 64 << 20, Patience: 2 * time.Minute, Passes: 1}
			conformancetest.Golden(t, target, o, "testdata/native-bare.golden")

			r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: target.Provider}}}.Attach(t.Context(), envelope(t, target).Target())
			if err != nil {
				t.Fatal(err)
			}
			target.Provider, target.ThroughRunner = r.Provider(), true
			if name == all.NativeRunsc { // the same code but for the driver, and the slower one
				o.Suites = []report.Suite{report.Nine}
				same(t, target, o, "testdata/native-runner.golden")
				return
			}
			o.Suites = conformance.DefaultSuites()
			conformancetest.Golden(t, target, o, "testdata/native-runner.golden")
		})
	}
}

func envelope(t *testing.T, target conformance.Target) sandbox.Capabilities {
	t.Helper()
	c, err := target.Provider.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}
