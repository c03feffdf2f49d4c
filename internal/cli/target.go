package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// openTarget makes a target ready. What it returns last closes it.
// Errors: *argument.Error for a name that is none; what the provider says.
func (a *app) openTarget(ctx context.Context, name string, f *conformanceFlags) (conformance.Target, func(), error) {
	builtin, ok := strings.CutPrefix(name, "builtin:")
	canonical, err := all.Canonical(builtin)
	if !ok || err != nil {
		return conformance.Target{}, nil, argument.Unexpected("TARGET", "builtin:memory, builtin:native, builtin:native:runsc or builtin:native:runc", name)
	}
	var target conformance.Target
	closeTarget := func() {}
	if canonical == all.Memory {
		target, _ = oracle.New(rand.Text())
		if f.image != "" {
			target.Image = f.image
		}
	} else if target, closeTarget, err = a.openHost(ctx, canonical, f); err != nil {
		return conformance.Target{}, nil, err
	}
	target.Name = name
	for _, k := range f.withhold {
		target.Withhold = append(target.Withhold, report.Token(k))
	}
	if f.census != "" {
		target.Census = censusCommand(f.census)
	}
	if f.runner {
		err = throughRunner(ctx, &target)
	}
	if err != nil {
		closeTarget()
		return conformance.Target{}, nil, err
	}
	return target, closeTarget, nil
}

// openHost makes a provider on this host a target, with a lab on it.
func (a *app) openHost(ctx context.Context, name string, f *conformanceFlags) (conformance.Target, func(), error) {
	opened, closeProvider, err := a.open(ctx, name, f.image, a.progress(f.asJSON))
	if err != nil {
		return conformance.Target{}, nil, err
	}
	dir, err := a.usableState()
	if err != nil {
		closeProvider()
		return conformance.Target{}, nil, err
	}
	network, err := lab.Open()
	if err != nil {
		closeProvider()
		return conformance.Target{}, nil, err
	}
	target := conformance.Target{
		Provider: opened.Provider, Image: opened.Image, Network: network,
		Census: func(context.Context) ([]string, error) { return lab.Census(filepath.Clean(dir)), nil },
	}
	return target, func() { _ = network.Close(); closeProvider() }, nil
}

// throughRunner puts the Runner's runtime in front of the provider.
func throughRunner(ctx context.Context, target *conformance.Target) error {
	envelope, err := target.Provider.Capabilities(ctx)
	if err != nil {
		return err
	}
	r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: target.Provider}}, Clock: target.Clock}.Attach(ctx, envelope.Target())
	if err != nil {
		return err
	}
	target.Provider, target.ThroughRunner = r.Provider(), true
	return nil
}

// binaryDigest is the digest of this program, "" if it cannot be read.
func binaryDigest() string {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer self.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, self); err != nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
