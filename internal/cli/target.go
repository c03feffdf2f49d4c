package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/internal/suite/oracle"
	"github.com/checkfu/checkfu/sandbox"
)

// targets are what can be named, for a person.
const targets = "builtin:memory, builtin:native, builtin:native:runsc, builtin:native:runc, unix:PATH, http://LOOPBACK:PORT, https://HOST or exec:PROGRAM"

// openTarget makes a target ready. What it returns last closes it.
// Errors: *argument.Error for a name that is none; what the provider says.
func (a *app) openTarget(ctx context.Context, name string, f *conformanceFlags) (conformance.Target, func(), error) {
	open, err := a.opener(name, f)
	if err != nil {
		return conformance.Target{}, nil, err
	}
	patience, err := argument.Duration("--patience", f.patience)
	if err != nil {
		return conformance.Target{}, nil, err
	}
	limit := min(patience, censusTime)
	if f.census != "" && !f.plan {
		if err := tryCensus(ctx, f.census, limit); err != nil {
			return conformance.Target{}, nil, err
		}
	}
	target, closeTarget, err := open(ctx, patience)
	if err != nil {
		return conformance.Target{}, nil, err
	}
	target.Name = name
	for k := range split(f.withhold) {
		target.Withhold = append(target.Withhold, report.Token(k))
	}
	if f.census != "" {
		target.Census = censusCommand(f.census, limit)
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

// opener finds out what kind of target a name means, and refuses what was said
// of another kind.
// Errors: *argument.Error.
func (a *app) opener(name string, f *conformanceFlags) (func(context.Context, time.Duration) (conformance.Target, func(), error), error) {
	kind, rest, _ := strings.Cut(name, ":")
	if err := f.belongs(kind); err != nil {
		return nil, err
	}
	switch kind {
	case "builtin":
		canonical, err := all.Canonical(rest)
		if err != nil {
			break
		}
		return func(ctx context.Context, _ time.Duration) (conformance.Target, func(), error) {
			if canonical == all.Memory {
				target, err := openMemory(f)
				return target, func() {}, err
			}
			return a.openHost(ctx, canonical, f)
		}, nil
	case "unix", "http", "https":
		return func(ctx context.Context, patience time.Duration) (conformance.Target, func(), error) {
			return openWire(ctx, name, f, patience)
		}, nil
	case "exec":
		return func(ctx context.Context, patience time.Duration) (conformance.Target, func(), error) {
			return openProgram(ctx, rest, f, patience)
		}, nil
	}
	return nil, argument.Unexpected("TARGET", targets, name)
}

// openMemory is the oracle.
func openMemory(f *conformanceFlags) (conformance.Target, error) {
	target, _ := oracle.New(rand.Text())
	if f.image != "" {
		if sandbox.ImageDigest(f.image) == "" {
			return target, argument.Unexpected("--image", "NAME@sha256:DIGEST with the memory provider, which has no store", f.image)
		}
		target.Image = f.image
	}
	return target, nil
}

// openHost makes a provider on this host a target, with a lab on it. The suite sweeps
// all that it is shown: it is shown an area without anybody's sessions. A plan needs
// neither image nor lab.
func (a *app) openHost(ctx context.Context, name string, f *conformanceFlags) (conformance.Target, func(), error) {
	dir, err := a.usableState()
	if err != nil {
		return conformance.Target{}, nil, err
	}
	if f.plan {
		opened, err := all.Open(name, all.Options{Dir: dir, Area: all.AreaTested})
		if err != nil {
			return conformance.Target{}, nil, err
		}
		return conformance.Target{Provider: opened.Provider}, func() { _ = opened.Close() }, nil
	}
	alone, err := a.alone(dir)
	if err != nil {
		return conformance.Target{}, nil, err
	}
	var guards native.Egress
	var open uplink.Host
	network, labErr := lab.OpenInternet()
	if labErr == nil {
		guards = native.Egress{Resolver: network.Resolver(), Within: network.Within}
		open = uplink.Host{Resolver: network.Resolver().Addr(), Within: network.Within}
	}
	opened, closeProvider, err := a.open(ctx, name, f.image, a.progress(f.asJSON), all.Options{Area: all.AreaTested, Egress: guards, Uplink: open})
	if err != nil || labErr != nil { // what the provider lacks is said rather than what the lab does
		if err == nil {
			closeProvider()
			err = labErr
		}
		if labErr == nil {
			_ = network.Close()
		}
		return conformance.Target{}, nil, errors.Join(err, alone.Close())
	}
	target := conformance.Target{
		Provider: opened.Provider, Image: opened.Image, Network: network, Census: hostCensus(dir, opened),
	}
	return target, func() { _ = network.Close(); closeProvider(); _ = alone.Close() }, nil
}

// alone keeps a second test off a state directory: each lets machines expire
// and wants to be told by its own sweep which were reclaimed.
// Errors: *argument.Error while another test is on its way.
func (a *app) alone(dir string) (*os.File, error) {
	lock, err := locked(filepath.Join(dir, "conformance.lock"), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, argument.Unexpected("--state", "a directory on which no other checkfu sandbox test runs (wait for its end, or name another directory)", dir)
	}
	return lock, err
}

// throughRunner puts the Runner's runtime in front of the provider, and again
// in front of what it is restarted as.
func throughRunner(ctx context.Context, target *conformance.Target) error {
	attach := func(ctx context.Context, p sandbox.Provider) (sandbox.Provider, error) {
		envelope, err := p.Capabilities(ctx)
		if err != nil {
			return nil, err
		}
		r, err := sandboxruntime.Selector{Adapters: []sandboxruntime.Adapter{{Provider: p, Remote: target.Remote}}, Clock: target.Clock}.Attach(ctx, envelope.Target())
		if err != nil {
			return nil, err
		}
		return r.Provider(), nil
	}
	p, err := attach(ctx, target.Provider)
	if err != nil {
		return err
	}
	target.Provider, target.ThroughRunner = p, true
	if restart := target.Restart; restart != nil {
		target.Restart = func(ctx context.Context) (sandbox.Provider, error) {
			p, err := restart(ctx)
			if err != nil {
				return nil, err
			}
			return attach(ctx, p)
		}
	}
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
