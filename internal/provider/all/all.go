// Package all is the one list of providers that this program can be told to
// use, by the name that a person types.
//
// Trusts: the state directory. Ownership: what Open returns is closed by the
// caller, after its last machine. Concurrency: the functions are pure but for
// the directories that they make.
// Source: design "The house" (internal/provider/all).
package all

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/internal/provider/native/runc"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/sandbox"
)

// The names. Native stands for NativeRunsc.
const (
	Native      = "native"
	NativeRunsc = "native:runsc"
	NativeRunc  = "native:runc"
	// NativeRootless is gVisor for an ordinary user, whose machines' resource limits
	// are not enforced. Only its full name stands for it.
	NativeRootless = "native:rootless"
	Memory         = "memory"
)

// Names returns every name that Open takes, the default first.
func Names() []string { return []string{NativeRunsc, NativeRunc, NativeRootless, Memory} }

// Hosts returns the names of the providers whose machines lie on this host and
// outlive a crash.
func Hosts() []string { return []string{NativeRunsc, NativeRunc, NativeRootless} }

// NameError says that there is no provider of a name.
type NameError struct{ Name string }

// Error lists the names.
func (e *NameError) Error() string {
	return fmt.Sprintf("expected %s or %s, got %q", Native, strings.Join(Names(), ", "), e.Name)
}

// Canonical returns the full form of a name.
// Errors: *NameError.
func Canonical(name string) (string, error) {
	if name == Native {
		return NativeRunsc, nil
	}
	for _, known := range Names() {
		if name == known {
			return name, nil
		}
	}
	return "", &NameError{name}
}

// Host is what a provider on this host can say besides.
type Host interface {
	Lacks(ctx context.Context) []machine.Lack
	List(ctx context.Context) ([]native.Running, error)
	Decisions(ctx context.Context, id sandbox.InstanceID, since int64) (native.Decisions, error)
	Conclude(ctx context.Context, id sandbox.InstanceID) (native.Decisions, error)
	Tunnel(ctx context.Context, id sandbox.InstanceID, port int) (*native.Tunnel, error)
	Unrestricted() error
	Keeps(ctx context.Context) (string, error)
	Snapshots(ctx context.Context) ([]native.KeptSnapshot, error)
	Reclaim(ctx context.Context, now sandbox.Timestamp) (sandbox.Swept, error)
	HomeBytes(id sandbox.InstanceID) int64
	ReleaseLive(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error)
}

// Opened is a provider that is ready to be called.
type Opened struct {
	Name     string
	Provider sandbox.Provider
	Envelope sandbox.Capabilities
	Host     Host // nil unless its machines lie on this host
	// Image is the image to use where none is named, "" where the image store
	// decides.
	Image string
	// Dir is where its machines and snapshots lie, "" unless on this host.
	Dir string
	// Builder makes the images of its profiles with packages; nil where Host is, and
	// where Packages says why there is none.
	Builder *native.Builder
	// Close removes what the provider keeps for all its machines together.
	Close func() error

	noBuilder error
}

// Options say what the providers work with.
type Options struct {
	// Dir is the state directory, absolute. Each driver has a part of it of
	// its own: one driver's sweep cannot end what another's machine is made of.
	Dir string
	// Area is whose machines and snapshots the provider has before it.
	Area Area
	// Images gives out the roots of machines.
	Images native.Images
	// Served says that the provider will be reached over a wire, where it claims
	// less: see Served. The memory provider then leaves allowlists out too.
	Served bool
	// Egress is for the guards of allowlist machines; the zero value is right but
	// for tests, whose guards live in a network of their own.
	Egress native.Egress
	// Uplink is for unrestricted machines, likewise.
	Uplink uplink.Host
	// Model leases a model route to every machine; nil leases none.
	Model func(context.Context, sandbox.ProvisionRequest) (*native.Lease, error)
	// Warm starts machines before they are asked for; the zero value starts none. The
	// memory provider has no machines and ignores it.
	Warm native.Warm
	// Registries are where packages come from, in the operator's words; nil is what
	// RegistriesFile in Dir says, if there is one.
	Registries *recipe.Registries
	// Building, if set, is told of each phase and line of a build; it must not block.
	Building func(native.BuildProgress)
	// Live makes machines of gVisor that can be kept with their processes, and lets those
	// go on; Cold takes the files of such alone (see native.Options).
	Live, Cold bool
	// Relay starts the relays of model routes; nil is right but for tests.
	Relay native.StartAttendant
}

// Envelope returns the envelope of a provider without opening it.
// Errors: *NameError.
func Envelope(name string) (sandbox.Capabilities, error) {
	name, err := Canonical(name)
	if err != nil {
		return sandbox.Capabilities{}, err
	}
	if driver, ok := strings.CutPrefix(name, Native+":"); ok {
		return native.Envelope(driver, runtime.GOARCH), nil
	}
	return memory.New(memory.Options{}).Capabilities(context.Background())
}

// Open makes the provider of a name ready.
// Errors: *NameError; *RouteError; *initbin.MissingError; what the host refuses.
func Open(name string, o Options) (*Opened, error) {
	name, err := Canonical(name)
	if err != nil {
		return nil, err
	}
	envelope, err := Envelope(name)
	if err != nil {
		return nil, err
	}
	opened := &Opened{Name: name, Envelope: envelope, Close: func() error { return nil }}
	if err := routable(name, o); err != nil {
		return nil, err
	}
	if name == Memory {
		options := memory.Options{Clock: wall{}, NoAllowlist: o.Served}
		if o.Served {
			options.Seed = rand.Text() // ids of a server that is started again must not repeat
		}
		m := memory.New(options)
		if opened.Envelope, err = m.Capabilities(context.Background()); err != nil {
			return nil, err
		}
		opened.Provider = m
		opened.Image = "checkfu.local/memory@sha256:" + strings.Repeat("0", 64)
		return opened, nil
	}
	guest, err := initbin.Bytes()
	if err != nil {
		return nil, err
	}
	common, err := join(o.Dir)
	if err != nil {
		return nil, err
	}
	if o.Dir, err = reachable(name, o.Dir); err != nil {
		return nil, errors.Join(err, common.leave(func() error { return nil }))
	}
	with, closeDriver, err := openDrivers(name, o.Dir)
	if err != nil {
		return nil, errors.Join(err, common.leave(func() error { return nil }))
	}
	opened.Close = func() error {
		return common.leave(func() error {
			defer removeCgroup(cgroupParent(o.Dir))
			return closeDriver()
		})
	}
	opened.Dir = o.Area.dir(o.Dir, with.instances.Name())
	// A provider without packages is one all the same.
	opened.Builder, opened.noBuilder = builder(o, with.builds, guest)
	p, err := native.New(native.Options{Builder: opened.Builder, Dir: opened.Dir, Driver: with.instances, Images: o.Images, Init: guest, Egress: egress(o), Uplink: &o.Uplink, Model: model(o), Durable: true, Live: o.Live, Cold: o.Cold, Warm: o.Warm})
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	closeDrivers := opened.Close
	opened.Close = func() error { return errors.Join(p.Close(), closeDrivers()) }
	opened.Provider, opened.Host = p, p
	if opened.Envelope, err = p.Capabilities(context.Background()); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	if o.Served {
		opened.Provider, opened.Envelope = Served(p), attested(opened.Envelope)
	}
	return opened, nil
}

// DefaultDir is the state directory of a host's root.
const DefaultDir = "/var/lib/checkfu"

// cgroupParent names the cgroup above those of the machines of one state
// directory. Its emptiness is judged under that directory's lock, so no two
// share one.
func cgroupParent(dir string) string {
	if dir == DefaultDir {
		return "checkfu"
	}
	return "checkfu-" + short(dir)
}

// drivers are what a provider starts machines with: those of its instances, and
// those of its builds, which are gVisor's also where the others are runc's.
type drivers struct{ instances, builds machine.Driver }

func openDrivers(name, dir string) (drivers, func() error, error) {
	d, err := gvisor.New(sentries(name, dir))
	if err != nil {
		return drivers{}, nil, err
	}
	if name == NativeRunc {
		return drivers{runc.New(runc.Options{Root: filepath.Join(dir, "runc"), CgroupParent: "/" + cgroupParent(dir)}), d}, d.Close, nil
	}
	return drivers{d, d}, d.Close, nil
}

// sentryRoot holds control sockets, whose addresses are short: the state of a
// directory with a long name lies under /run, always at the same place.
func sentryRoot(dir string) string {
	const longest = 60
	if root := filepath.Join(dir, "runsc"); len(root) <= longest {
		return root
	}
	return "/run/checkfu-" + short(dir)
}

func short(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6])
}

// wall is the machine's own clock for the memory provider, whose sleeps then
// last.
type wall struct{}

var _ memory.Waiter = wall{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }
