package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// A profile with packages runs on a derived image: its base, and on top of that
// one layer that a build machine made. That machine is an instance like any other
// but for its root, which is writable, and its workload, which is guest root; it is
// a gVisor machine whatever driver runs the profile. What is kept of it is what an
// overlay says it changed, read when all of it has ended.
// Source: contract "The operations", provision; concept "The capability envelope",
// row package_managers.

// ImageStore is where derived images are kept; *image.Store is one.
type ImageStore interface {
	Images
	Derived(ctx context.Context, key string) (image.Image, error)
	Derive(ctx context.Context, d image.Derivation, diff image.Difference) (image.Image, error)
	Turn(ctx context.Context, key string) (end func(), err error)
}

// BuilderOptions say what a Builder works with.
type BuilderOptions struct {
	// Dir holds its machines, and nobody else's: see Options.Dir.
	Dir string
	// Driver starts them. It must be one that takes machine.Spec.Build: gVisor's.
	Driver machine.Driver
	// Images holds bases, and keeps what is built.
	Images ImageStore
	// Init is the guest init, a static binary.
	Init []byte
	// Egress is what machines with a guard need; nil leaves only packages that need
	// no network, which are none.
	Egress *Egress
	// Registries are the operator's settings of where packages come from.
	Registries recipe.Registries
	// Limits bound one build; the zero value is BuildLimits.
	Limits sandbox.Resources
	// Progress, if set, is called at each phase of a build and with each line that
	// it writes, one call at a time for one build. It must not block.
	Progress func(BuildProgress)
	// Now and Step are as in Options.
	Now  func() time.Time
	Step func(step string)
}

// BuildLimits bound a build where nobody says otherwise. Its disk is reserved while
// it lasts, so that nothing of it is lost on a full one: of what is free a build
// takes no more than a quarter.
var BuildLimits = sandbox.Resources{CPUMillis: 4000, MemoryBytes: 4 << 30, DiskBytes: 3 << 30, MaxProcesses: 1024, MaxDurationSeconds: 20 * 60}

// The phases of a build, in their order.
const (
	BuildWaits    = "waiting"    // for the same build by somebody else
	BuildStarts   = "starting"   // the machine
	BuildInstalls = "installing" // the packages of one step
	BuildKeeps    = "keeping"    // the difference, as a layer
)

// BuildProgress is one step of a build.
type BuildProgress struct {
	Phase string
	// Packages are those of a step, as people write them.
	Packages []string
	// Line is the last that the step wrote: printable text of at most maxLine bytes.
	Line string
}

// BuildError says which packages could not be installed.
type BuildError struct {
	Packages []string  // as people write them: "apt:jq@1.6"
	Reason   string    // what happened, one line
	Output   []string  // the last lines that were written, printable, at most keptLines
	Refused  []Refusal // what the guard of the build let not through, most frequent first
	Err      error     // the cause, where there is one beyond the reason
}

// Error is one line. What the packages' own programs wrote is quoted.
func (e *BuildError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s could not be installed: %s", strings.Join(e.Packages, ", "), e.Reason)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if len(e.Output) > 0 {
		b.WriteString("; it ended with:")
		for _, line := range e.Output {
			fmt.Fprintf(&b, " %q", line)
		}
	}
	b.WriteString(refusedText(e.Refused))
	return b.String()
}

// Unwrap returns the cause.
func (e *BuildError) Unwrap() error { return e.Err }

// Builder makes derived images, each once.
// Concurrency: any number of calls, also of several processes with one image store.
type Builder struct {
	opt    BuilderOptions
	p      *Provider // of its machines
	recipe func([]sandbox.Package, recipe.Registries) (recipe.Recipe, error)

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is one build of this process that others wait for.
type flight struct {
	done chan struct{}
	err  error // valid after done
}

// NewBuilder opens the builder's directory.
// Errors: host errors, in the words of the operating system.
func NewBuilder(o BuilderOptions) (*Builder, error) {
	if o.Limits == (sandbox.Resources{}) {
		o.Limits = BuildLimits
	}
	p, err := New(Options{Dir: o.Dir, Driver: o.Driver, Images: o.Images, Init: o.Init, Egress: o.Egress, Now: o.Now, Step: o.Step})
	if err != nil {
		return nil, err
	}
	return &Builder{opt: o, p: p, recipe: recipe.For, flights: map[string]*flight{}}, nil
}

// Lacks says why no package can be built in here, or nil.
func (b *Builder) Lacks(ctx context.Context) error {
	if b.p.rootless() {
		// Who installs is root in there, and nothing would bound what that takes.
		return errors.New("an ordinary user's machines have no resource limits, and a build needs them; run it with sudo")
	}
	if b.p.opt.Egress == nil {
		return errors.New("a build needs an egress guard, and there can be none")
	}
	var text []string
	for _, l := range b.p.Lacks(ctx) {
		text = append(text, fmt.Sprintf("%s (%s)", l.What, l.Remedy))
	}
	if len(text) > 0 {
		return errors.New(strings.Join(text, "; "))
	}
	return nil
}

// packageNames names packages as people write them.
func packageNames(all []sandbox.Package) []string {
	var names []string
	for _, one := range all {
		name := string(one.Manager) + ":" + one.Name
		if one.Version != "" {
			name += "@" + one.Version
		}
		names = append(names, name)
	}
	return names
}

// Materialize gives the image of a profile with packages, and builds it if it is not
// there. It is what provision does, for who wants it done before.
// Blocks: for as long as a build takes, at most Limits' duration, or ctx.
// Errors: *BuildError of a package; *sandbox.Invalid of one that has no recipe;
// those of the image store; ctx's.
func (b *Builder) Materialize(ctx context.Context, profile sandbox.Profile, platform sandbox.Platform) (image.Image, error) {
	j, err := b.job(profile, platform)
	if err != nil {
		return image.Image{}, err
	}
	return b.materialize(ctx, j)
}

// Root is Materialize, unpacked and held.
func (b *Builder) Root(ctx context.Context, profile sandbox.Profile, platform sandbox.Platform) (*image.Root, error) {
	j, err := b.job(profile, platform)
	if err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		img, err := b.materialize(ctx, j)
		if err != nil {
			return nil, err
		}
		root, err := b.opt.Images.Rootfs(ctx, img.Digest)
		if err == nil || !errors.Is(err, image.ErrNotFound) || tries == 2 {
			return root, err
		}
		// Somebody pruned it in between.
	}
}

// job is one image to be made.
type job struct {
	base     sandbox.Digest // of the image below
	packages []sandbox.Package
	derived  image.Derivation
}

// job is the image of a profile by the registries of b: one with the same packages from
// elsewhere is another.
func (b *Builder) job(profile sandbox.Profile, platform sandbox.Platform) (job, error) {
	base := sandbox.ImageDigest(profile.BaseImage)
	digest := profileDigest(profile)
	origin, err := b.opt.Registries.Origin(profile.Packages)
	if err != nil {
		return job{}, err
	}
	key, err := canonical.Encode(struct {
		Profile         sandbox.Digest   `json:"profile"`
		Platform        sandbox.Platform `json:"platform"`
		Root            sandbox.Digest   `json:"root"`
		Materialization string           `json:"materialization"`
		Origin          string           `json:"origin,omitzero"`
	}{digest, platform, base, MaterializationRevision, origin})
	if err != nil {
		return job{}, err
	}
	return job{
		base: base, packages: slices.Clone(profile.Packages),
		derived: image.Derivation{Key: canonical.Digest(key), Base: string(base), Profile: string(digest), Materialization: MaterializationRevision, Packages: packageNames(profile.Packages)},
	}, nil
}

// materialize builds what is not there. Who comes while it is being built shares the
// result, and the failure too; but not the impatience of whoever came first.
func (b *Builder) materialize(ctx context.Context, j job) (image.Image, error) {
	for {
		img, err := b.opt.Images.Derived(ctx, j.derived.Key)
		if err == nil || !errors.Is(err, image.ErrNotFound) {
			return img, err
		}
		b.mu.Lock()
		f := b.flights[j.derived.Key]
		lead := f == nil
		if lead {
			f = &flight{done: make(chan struct{})}
			b.flights[j.derived.Key] = f
		}
		b.mu.Unlock()
		if lead {
			img, err := b.build(ctx, j)
			if f.err = err; err != nil && ctx.Err() != nil {
				f.err = ctx.Err() // whatever it broke off by: a program of the build that was killed
			}
			b.mu.Lock()
			delete(b.flights, j.derived.Key)
			b.mu.Unlock()
			close(f.done)
			return img, err
		}
		b.report(BuildProgress{Phase: BuildWaits, Packages: j.derived.Packages})
		select {
		case <-f.done:
		case <-ctx.Done():
			return image.Image{}, ctx.Err()
		}
		if f.err != nil && !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return image.Image{}, f.err
		}
	}
}

// build waits for other processes' builds of the same image, and makes it if none of
// them did.
func (b *Builder) build(ctx context.Context, j job) (image.Image, error) {
	r, err := b.recipe(j.packages, b.opt.Registries)
	if err != nil {
		return image.Image{}, err
	}
	b.report(BuildProgress{Phase: BuildWaits, Packages: j.derived.Packages})
	end, err := b.opt.Images.Turn(ctx, j.derived.Key)
	if err != nil {
		return image.Image{}, err
	}
	defer end()
	if img, err := b.opt.Images.Derived(ctx, j.derived.Key); err == nil || !errors.Is(err, image.ErrNotFound) {
		return img, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(b.opt.Limits.MaxDurationSeconds)*time.Second, errSlow)
	defer cancel()
	img, err := b.run(ctx, j, r)
	if err != nil && context.Cause(ctx) == errSlow {
		return image.Image{}, &BuildError{
			Packages: j.derived.Packages, Reason: fmt.Sprintf("it took longer than %d s", b.opt.Limits.MaxDurationSeconds), Output: outputOf(err),
		}
	}
	return img, err
}

var errSlow = errors.New("the build took too long")

func outputOf(err error) []string {
	if e, ok := errors.AsType[*BuildError](err); ok {
		return e.Output
	}
	return nil
}

func (b *Builder) report(p BuildProgress) {
	if b.opt.Progress != nil {
		b.opt.Progress(p)
	}
}

// Sweep removes what builds left whose process died. One under way is never touched.
// Errors: those of Provider.Cleanup.
func (b *Builder) Sweep(ctx context.Context, now, orphanedBefore sandbox.Timestamp) error {
	_, err := b.p.sweep(ctx, sandbox.CleanupRequest{Now: now, OrphanedBefore: orphanedBefore}, orphanedBefore, false)
	return err
}

// materialized is the root of an instance of p: its image's, or that of the image
// derived from it.
// Errors: those of provision.
func (p *Provider) materialized(ctx context.Context, r sandbox.ProvisionRequest) (*image.Root, error) {
	if len(r.Profile.Packages) == 0 {
		root, err := p.opt.Images.Rootfs(ctx, string(sandbox.ImageDigest(r.RootImage)))
		if err != nil {
			return nil, sandbox.Failed(sandbox.OpProvision, "root_image", err)
		}
		return root, nil
	}
	root, err := p.opt.Builder.Root(ctx, r.Profile, r.Platform)
	switch invalid := (*sandbox.Invalid)(nil); {
	case err == nil:
		return root, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &invalid):
		return nil, sandbox.Failed(sandbox.OpProvision, sandbox.ReasonInvalidRequest, err)
	case errors.Is(err, image.ErrNotFound):
		return nil, sandbox.Failed(sandbox.OpProvision, "root_image", err)
	}
	reason := "packages"
	if e, ok := errors.AsType[*BuildError](err); ok {
		reason += ": " + strings.Join(e.Packages, ", ")
	}
	return nil, sandbox.Failed(sandbox.OpProvision, reason, err)
}

// unmanaged is the first package manager of a profile that an envelope does not
// offer, "" if it offers all.
func unmanaged(c sandbox.Capabilities, profile sandbox.Profile) string {
	for _, one := range profile.Packages {
		if !slices.Contains(c.PackageManagers, one.Manager) {
			return string(one.Manager)
		}
	}
	return ""
}

// managers are the package managers that this provider can use here.
func (p *Provider) managers() []sandbox.PackageManager {
	if p.opt.Builder == nil || p.opt.Builder.Lacks(context.Background()) != nil {
		return []sandbox.PackageManager{}
	}
	return recipe.Managers()
}
