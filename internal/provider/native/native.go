// Package native is a sandbox provider on one ordinary Linux machine: no
// daemon, no KVM, no container engine. Isolation comes from a driver (gVisor
// or runc, see package machine); this package owns everything else: identity,
// the record on disk, the homes, the mounts, staging, contained reads, bounded
// commands, live processes, and the sweep.
//
// What an instance is on the host, below Options.Dir:
//
//	instances/ID/lock         flock held by the owner for as long as it lives
//	instances/ID/record.json  written before anything else is made
//	instances/ID/skeleton     mount points and /etc/passwd, lower layer of root
//	instances/ID/root         read-only overlay of skeleton and image
//	instances/ID/home         tmpfs with mounts/N, outputs, tmp, user, control,
//	                          and writes (package journal), which no guest sees; of
//	                          a durable one the image beside it, mounted
//	instances/ID/home.image   the image, of a durable one only
//	instances/ID/machine      the driver's own state
//	instances/ID/egress       the sockets of its guard and its relay, where it has one
//	instances/ID/decisions    the guard's log, of an allowlist machine only
//	instances/ID/requests     the relay's log, of one with a model route only
//
// Trusts: its own directory, the image store, the driver. Does not trust: the
// workload, and anything it can write.
// Retention: of ephemeral_zdr homes are tmpfs, never swapped, charged to the
// instance; nothing the workload writes reaches a disk. Of durable, where it is
// offered, they are images on the disk, and snapshots/ beside instances/ holds
// those that are kept (see package snapshot).
// Errors: *sandbox.Error as the contract says.
// Concurrency: every member may be called at once; lifecycle changes of one
// instance are compare-and-set under its lock, commands run side by side.
// Ownership: an instance lives as long as the process that provisioned it; a
// machine whose owner dies ends itself, and Cleanup removes the rest.
// Source: contract "The operations"; concept "The capability envelope".
package native

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/sandbox"
)

// IDBase is the user and group id of guest id 0 in every machine, in the namespace
// that the provider is in. On the host it lies above all ids that user tools give to
// users (/etc/subuid, up to 600100000) and service managers to containers (up to
// 1879048191), and below the sign bit: whoever has the usual subordinate ids would
// be the owner of every machine's files and processes there.
const IDBase = 0x72000000

// Images gives out unpacked roots by digest; *image.Store does.
type Images interface {
	Rootfs(ctx context.Context, digest string) (*image.Root, error)
}

// Options of a Provider.
type Options struct {
	// Dir holds all state. It is made with mode 0711: the machine's runtime
	// runs under ids of its own and must be able to pass through. A symbolic link is
	// followed once, by New.
	Dir string
	// Driver starts the machines.
	Driver machine.Driver
	// Images gives out roots, unpacked at IDBase.
	Images Images
	// Init is the guest init, a static binary.
	Init []byte
	// Egress is what allowlist machines need; nil leaves them out of the envelope.
	Egress *Egress
	// Uplink is the network that unrestricted machines are let into; nil leaves them
	// out of the envelope, as does a host that lacks something for it.
	Uplink *uplink.Host
	// Model gives every machine a model route; nil gives none.
	Model *Model
	// Builder makes the images of profiles with packages; nil leaves packages out of
	// the envelope, as does a host on which none can be built.
	Builder *Builder
	// Durable offers durable retention too, where the host can: homes in images on
	// the disk, and snapshots of them.
	Durable bool
	// Live makes machines of durable instances that can be written down with their
	// processes, and lets those go on that were (see ReleaseLive). A driver that cannot
	// ignores it.
	Live bool
	// Cold resumes files alone, also of what was written down with its processes.
	Cold bool
	// Warm starts machines before they are asked for. Who opens such a provider
	// closes it.
	Warm Warm
	// Now is the clock of timestamps and expiry; nil is time.Now.
	Now func() time.Time
	// Step, if set, is called with the name of each step of the lifecycle just
	// after it was taken. Crash tests die there.
	Step func(step string)
}

// Provider is the native provider over one driver.
type Provider struct {
	opt      Options
	initPath string
	twin     machine.Twin // tests weaken one axis here
	twinHome twinHome

	probing   sync.Mutex
	complete  bool // the host was seen to lack nothing
	linkable  bool // likewise for an unrestricted network
	keeping   bool // likewise for durable retention
	mu        sync.Mutex
	instances map[sandbox.InstanceID]*instance
	pool      *pool // nil where no machine waits

	snapshots  *snapshot.Store // also where durable retention cannot be had, for those that are there
	storeFault error           // why there is no store where one is wanted
	choose     func(context.Context, string) (snapshot.Choice, error)
}

// twinHome are the controls that this package, not the driver, sets; tests
// start a machine without one of them to show what it held back.
type twinHome struct {
	noDiskLimit bool
	restless    bool // a machine is not paused while its home is copied
	unsealed    bool
}

var _ sandbox.Provider = (*Provider)(nil)

// New opens the provider's directory.
// Errors: host errors, in the words of the operating system.
func New(opt Options) (*Provider, error) {
	if opt.Driver.Name() == machine.Rootless {
		opt.Uplink, opt.Builder, opt.Durable = nil, nil, false // see lessened
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Step == nil {
		opt.Step = func(string) {}
	}
	for _, dir := range []string{opt.Dir, filepath.Join(opt.Dir, "instances"), filepath.Join(opt.Dir, "bin")} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
		if err := os.Chmod(dir, 0o711); err != nil { // the umask may have taken bits away
			return nil, err
		}
	}
	// The kernel names open files and mounts by their real path, and what looks for
	// one of ours there has to name it so too.
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}
	if opt.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	p := &Provider{opt: opt, instances: map[sandbox.InstanceID]*instance{}, choose: snapshot.Choose}
	if p.initPath, err = installInit(filepath.Join(opt.Dir, "bin"), opt.Init); err != nil {
		return nil, err
	}
	p.openSnapshots()
	if err := p.openPool(); err != nil {
		return nil, err
	}
	return p, nil
}

// installInit puts the guest init where machines can bind it, once per build.
func installInit(dir string, binary []byte) (string, error) {
	path := filepath.Join(dir, "checkfu-init-"+sha256Hex(binary)[:16])
	if have, err := os.ReadFile(path); err == nil && string(have) == string(binary) {
		return path, nil
	}
	f, err := os.CreateTemp(dir, ".init-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(binary)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err != nil {
		return "", err
	}
	return path, os.Rename(f.Name(), path)
}

// Optional returns the members this provider has beyond the required ones.
func (p *Provider) Optional() sandbox.Optional {
	return sandbox.Optional{ReadFiles: p, ListDir: p, ListProjectDir: p, OpenProcess: p, ActiveWrite: p}
}

// Capabilities returns the envelope of this driver's revision.
func (p *Provider) Capabilities(context.Context) (sandbox.Capabilities, error) {
	return p.envelope(), nil
}

// envelope is the full one, without what this host or this program lacks.
func (p *Provider) envelope() sandbox.Capabilities {
	c := Envelope(p.opt.Driver.Name(), runtime.GOARCH)
	c.PackageManagers = p.managers()
	if p.Durable() != nil {
		withoutSnapshots(&c)
	}
	if p.opt.Egress == nil {
		c.EgressCertification = sandbox.EgressUnsupported
		c.NetworkModes = slices.DeleteFunc(c.NetworkModes, func(m sandbox.NetworkMode) bool { return m == sandbox.NetworkAllowlist })
	}
	if p.Unrestricted() != nil {
		c.NetworkModes = slices.DeleteFunc(c.NetworkModes, func(m sandbox.NetworkMode) bool { return m == sandbox.NetworkUnrestricted })
	}
	return c
}

// Lacks says what this host is missing. Once nothing is, it is not asked again;
// what is missing may be there the next time.
func (p *Provider) Lacks(ctx context.Context) []machine.Lack {
	p.probing.Lock()
	defer p.probing.Unlock()
	if p.complete {
		return nil
	}
	// A caller that gives up would look like a host that lacks something.
	lacks := append(p.opt.Driver.Probe(context.WithoutCancel(ctx)), probeHost(p.opt.Dir, p.rootless())...)
	p.complete = len(lacks) == 0
	return lacks
}

// refuseLacks turns a missing host feature into a refusal that names it: a
// control that cannot be set is never silently left out.
func (p *Provider) refuseLacks(ctx context.Context) error {
	var text []string
	for _, l := range p.Lacks(ctx) {
		text = append(text, strings.TrimSpace(fmt.Sprintf("%s (%s)", l.What, l.Remedy)))
	}
	if len(text) == 0 {
		return nil
	}
	return sandbox.Failed(sandbox.OpProvision, "host_lacks", errors.New(strings.Join(text, "; ")))
}

// Provision writes the record, mounts the home and the root, and prepares
// every declared mount. No process is started yet.
func (p *Provider) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	in, err := p.create(ctx, r, nil)
	if err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return sandbox.Handoff[sandbox.Instance]{Value: in.describe(), Rollback: p.rollback(sandbox.OpProvision, in.id)}, nil
}

// create makes an instance in provisioning, its home out of a snapshot if one is
// given. Its errors are those of provision.
func (p *Provider) create(ctx context.Context, r sandbox.ProvisionRequest, kept *snapshot.Hold) (*instance, error) {
	defer p.pool.work()()
	if err := r.Validate(); err != nil {
		return nil, sandbox.Failed(sandbox.OpProvision, sandbox.ReasonInvalidRequest, err)
	}
	if err := p.refuseUnlinkable(r); err != nil {
		return nil, err
	}
	if err := p.admit(r); err != nil {
		return nil, err
	}
	deadline, err := r.ExpiresAt.Time()
	if err != nil || !deadline.After(p.opt.Now()) {
		return nil, sandbox.Conflict(sandbox.OpProvision, "expires_at in the future", string(r.ExpiresAt))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.refuseLacks(ctx); err != nil {
		return nil, err
	}
	if kept == nil {
		if in := p.claim(ctx, r); in != nil {
			p.made(in, deadline)
			return in, nil
		}
	}
	root, err := p.materialized(ctx, r)
	if err != nil {
		return nil, err
	}
	in := newInstance(p, newInstanceID(), r, root)
	in.kept, in.goingOn = kept, kept != nil && p.goesOn(kept)
	if err := in.findNameServer(); err != nil {
		root.Release()
		return nil, sandbox.Failed(sandbox.OpProvision, "host_lacks", err)
	}
	if in.guarded() {
		if in.policy, err = p.compile(in.id, r); err != nil {
			root.Release()
			return nil, sandbox.Failed(sandbox.OpProvision, "host_lacks", err)
		}
	}
	if err := in.takeLease(ctx); err != nil {
		in.endLease(context.WithoutCancel(ctx))
		root.Release()
		return nil, sandbox.Failed(sandbox.OpProvision, "model_route", err)
	}
	if err := in.allocate(ctx); err != nil {
		// The caller's context may be what ended it; undoing has its own bound.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandbox.RollbackSeconds*time.Second)
		defer cancel()
		all := errors.Join(err, in.remove(undo))
		if _, said := errors.AsType[*sandbox.Error](err); said {
			return nil, all
		}
		return nil, sandbox.Failed(sandbox.OpProvision, sandbox.ReasonProviderError, all)
	}
	in.kept = nil
	p.mu.Lock()
	p.instances[in.id] = in
	p.mu.Unlock()
	p.made(in, deadline)
	return in, nil
}

// made ends what made an instance: it is there until its deadline.
func (p *Provider) made(in *instance, deadline time.Time) {
	in.expireAt(deadline)
	p.pool.learn(in.request)
	p.opt.Step("provisioned")
}

// rollback undoes op. It knows the id that was allocated and nothing of the
// value returned.
func (p *Provider) rollback(op sandbox.Operation, id sandbox.InstanceID) func(context.Context) error {
	return func(ctx context.Context) error { return p.destroy(ctx, op, id) }
}

// admit refuses what this provider cannot do even if a caller did not ask the
// envelope first.
func (p *Provider) admit(r sandbox.ProvisionRequest) error {
	envelope := p.envelope()
	refuse := func(req sandbox.Requirement, wanted, offered string) error {
		return sandbox.Unavailable(sandbox.OpProvision, req, wanted, offered)
	}
	if err := targeted(envelope.Target(), r.Target); err != nil {
		return err
	}
	switch {
	case r.Profile.Tier != sandbox.TierContainer:
		return refuse(sandbox.RequireTier, string(r.Profile.Tier), string(sandbox.TierContainer))
	case r.Platform != envelope.Platforms[0]:
		return refuse(sandbox.RequirePlatform, r.Platform.Architecture, runtime.GOARCH)
	case unmanaged(envelope, r.Profile) != "":
		return refuse(sandbox.RequirePackages, unmanaged(envelope, r.Profile), named(envelope.PackageManagers))
	case r.RootImage != r.Profile.BaseImage:
		return refuse(sandbox.RequireBaseImage, r.RootImage, r.Profile.BaseImage)
	case !slices.Contains(envelope.NetworkModes, r.Profile.NetworkPolicy.Mode):
		return refuse(sandbox.RequireNetworkPolicy, string(r.Profile.NetworkPolicy.Mode), named(envelope.NetworkModes))
	case r.Profile.NetworkPolicy.RequiredEgressCertification == sandbox.EgressSecurityBoundary:
		return refuse(sandbox.RequireNetworkPolicy, string(sandbox.EgressSecurityBoundary), string(envelope.EgressCertification))
	case !slices.Contains(envelope.RetentionModes, r.Profile.RetentionMode):
		return refuse(sandbox.RequireRetention, string(r.Profile.RetentionMode), string(sandbox.RetentionEphemeralZDR))
	}
	if axis := r.Profile.ResourceLimits.Within(envelope.MinimumResources, envelope.MaximumResources); axis != "" {
		return refuse(sandbox.RequireResources, axis, "outside the envelope")
	}
	return nil
}

// targeted refuses a request for another provider, by the first field that differs.
func targeted(own, asked sandbox.Target) error {
	for _, f := range []struct{ name, own, asked string }{
		{"provider", own.Provider, asked.Provider},
		{"placement", string(own.Placement), string(asked.Placement)},
		{"provider_revision", own.ProviderRevision, asked.ProviderRevision},
		{"materialization_revision", own.MaterializationRevision, asked.MaterializationRevision},
	} {
		if f.own != f.asked {
			return sandbox.Conflict(sandbox.OpProvision, "target."+f.name+" "+f.own, f.asked)
		}
	}
	return nil
}

// named names what an envelope offers of one kind.
func named[T ~string](offered []T) string {
	if len(offered) == 0 {
		return "none"
	}
	var names []string
	for _, one := range offered {
		names = append(names, string(one))
	}
	return strings.Join(names, " or ")
}

// find returns a live instance of this process.
func (p *Provider) find(op sandbox.Operation, id sandbox.InstanceID) (*instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// One past its deadline is gone, also where the timer that removes it is late:
	// a busy host is no reason to work longer than was agreed.
	if in := p.instances[id]; in != nil && sandbox.At(p.opt.Now()).Before(in.request.ExpiresAt) {
		return in, nil
	}
	return nil, sandbox.NoInstance(op, id)
}

// Activate seals the mounts, starts the machine and reads back from outside
// that every control holds.
func (p *Provider) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	var none sandbox.Handoff[sandbox.Instance]
	in, err := p.find(sandbox.OpActivate, id)
	if err != nil {
		return none, err
	}
	defer p.pool.work()()
	if err := in.activate(ctx); err != nil {
		return none, err
	}
	return sandbox.Handoff[sandbox.Instance]{Value: in.describe(), Rollback: p.rollback(sandbox.OpActivate, id)}, nil
}

// Destroy ends one instance and removes all of it. An id that this process
// does not hold is looked for on disk, so that it works after a crash too.
func (p *Provider) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	return p.destroy(ctx, sandbox.OpDestroy, id)
}

// destroy is Destroy on behalf of op: no other member's error can be an answer
// to what the caller asked for.
func (p *Provider) destroy(ctx context.Context, op sandbox.Operation, id sandbox.InstanceID) error {
	p.mu.Lock()
	p.pool.pull(id)
	in := p.instances[id]
	p.mu.Unlock()
	var err error
	if in != nil {
		err = in.remove(ctx)
	} else {
		err = p.removeFromDisk(ctx, id)
	}
	if err != nil {
		return sandbox.Failed(op, sandbox.ReasonProviderError, err)
	}
	p.mu.Lock()
	delete(p.instances, id)
	p.mu.Unlock()
	return nil
}

// newInstanceID returns 32 hex characters: one fixed length, because runsc
// resolves ids by prefix and a shorter id could name a neighbour.
func newInstanceID() sandbox.InstanceID {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	return sandbox.InstanceID(hex.EncodeToString(b[:]))
}

// validID reports whether id is one that newInstanceID can have made; any
// other id names nothing here and never reaches a path.
func validID(id sandbox.InstanceID) bool {
	if len(id) != 32 {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
