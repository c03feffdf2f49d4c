package conformance

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
)

// full has the contract and process suites run with machines that wait, too: some
// minutes, most of them by the clock, of what TestNative runs without.
var full = flag.Bool("full", false, "run the contract and process suites with machines that wait")

// TestNativeWarm: with machines that wait, a provider has the outcomes that it has
// without: what a machine that is not fresh, not sealed or not its own would fail.
func TestNativeWarm(t *testing.T) {
	t.Parallel()
	for _, name := range []string{all.NativeRunsc, all.NativeRunc} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := open(t, name, func(o *all.Options) {
				o.Warm = native.Warm{Each: 2, Quiet: time.Millisecond, Failed: func(err error) { t.Error(err) }}
			})
			counting := &counted{Provider: target.Provider.(*native.Provider)}
			target.Provider = counting
			o := conformance.Options{Suites: []report.Suite{report.Nine}, Patience: 2 * time.Minute, Passes: 1}
			if name == all.NativeRunc {
				o.Suites = append(o.Suites, report.Files)
				if *full {
					o.Suites = append(o.Suites, report.Contract, report.Live)
				}
			}
			same(t, target, o, "testdata/native-bare.golden")
			t.Logf("%d of %d provisions were of machines that waited", counting.warm.Load(), counting.all.Load())
			if name == all.NativeRunc && counting.warm.Load() == 0 { // the nine alone may ask for nothing twice
				t.Error("no machine that waited was given to anybody, so this proves nothing")
			}
		})
	}
}

// counted counts how many of its provisions were given a machine that waited. Each
// waits for one for a moment, so that a busy host does not make all of them cold.
type counted struct {
	*native.Provider
	all, warm atomic.Int64
}

func (c *counted) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	for late := time.Now().Add(time.Second); c.all.Load() > 0 && c.Waiting() == 0 && time.Now().Before(late); {
		time.Sleep(5 * time.Millisecond)
	}
	waits, err := waiting(ctx, c.Provider)
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	h, err := c.Provider.Provision(ctx, r)
	if err == nil {
		c.all.Add(1)
		if slices.Contains(waits, string(h.Value.InstanceID)) {
			c.warm.Add(1)
		}
	}
	return h, err
}

func waiting(ctx context.Context, host all.Host) (ids []string, err error) {
	list, err := host.List(ctx)
	for _, m := range list {
		if m.Waits {
			ids = append(ids, string(m.InstanceID))
		}
	}
	return ids, err
}

// claimed names what a provider has alive, but for what waits or is being made to. One
// that began to be made in the middle of the first look is no news in the second.
func claimed(ctx context.Context, dir string, o *all.Opened) ([]string, error) {
	var twice []string
	for look := range 2 {
		list, err := o.Host.List(ctx)
		if err != nil {
			return nil, err
		}
		nobodys, err := os.ReadDir(filepath.Join(o.Dir, "instances"))
		if err != nil {
			return nil, err
		}
		var others []string
		for _, e := range nobodys {
			id := strings.TrimPrefix(e.Name(), ".new-")
			if !slices.ContainsFunc(list, func(m native.Running) bool { return string(m.InstanceID) == id && !m.Waits }) {
				others = append(others, id)
			}
		}
		found := lab.Census(dir, others...)
		if look == 0 {
			twice = found
		}
		twice = slices.DeleteFunc(twice, func(what string) bool { return !slices.Contains(found, what) })
	}
	return twice, nil
}
