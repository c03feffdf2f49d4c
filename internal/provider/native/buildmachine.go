package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// transient are the directories of a build machine that are no part of any image:
// its own, and those that a machine has anew at each start.
var transient = []string{"/dev", "/proc", "/run", "/sys", "/tmp"}

// memoryDisk bounds the disk of a build where no image on the disk can be had: it is
// memory then.
const memoryDisk = 2 << 30

// run makes the image in a machine of its own, of which nothing is left in the end,
// whatever the end is.
func (b *Builder) run(ctx context.Context, j job, r recipe.Recipe) (_ image.Image, err error) {
	if err := b.Lacks(ctx); err != nil {
		return image.Image{}, fmt.Errorf("packages cannot be built here: %w", err)
	}
	base, err := b.opt.Images.Rootfs(ctx, string(j.base))
	if err != nil {
		return image.Image{}, err
	}
	b.report(BuildProgress{Phase: BuildStarts, Packages: j.derived.Packages})
	in := newInstance(b.p, newInstanceID(), b.request(ctx, j, r), base)
	in.building, in.trees = &r, []tree{{guest: "/tmp", home: "tmp", mode: 0o777 | os.ModeSticky}}
	if in.guarded() {
		if in.policy, err = b.p.compilePinned(in.id, in.request, r.Pins); err != nil {
			base.Release()
			return image.Image{}, err
		}
	}
	b.p.mu.Lock()
	b.p.instances[in.id] = in
	b.p.mu.Unlock()
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownBound)
		defer cancel()
		err = errors.Join(err, b.p.Destroy(undo, in.id))
	}()
	began := time.Now()
	if err := in.allocate(ctx); err != nil {
		return image.Image{}, err
	}
	if err := in.activate(ctx); err != nil {
		return image.Image{}, err
	}
	for _, step := range r.Steps {
		if err := b.step(ctx, in, r, j, step); err != nil {
			return image.Image{}, err
		}
		b.p.opt.Step("installed")
	}
	// Nothing may write any more when the difference is read.
	if err := in.machine.Destroy(ctx); err != nil {
		return image.Image{}, err
	}
	if err := unmount(ctx, in.at.root()); err != nil {
		return image.Image{}, err
	}
	b.report(BuildProgress{Phase: BuildKeeps, Packages: j.derived.Packages})
	b.p.opt.Step("ended")
	img, err := b.opt.Images.Derive(ctx, j.derived, image.Difference{
		Upper: in.at.upper(), Began: began, Discard: append(append([]string{}, transient...), r.Discard...),
		MaxBytes: in.request.Profile.ResourceLimits.DiskBytes,
	})
	switch {
	case errors.Is(err, image.ErrTooLarge), errors.Is(err, image.ErrUnsupported), errors.Is(err, image.ErrHostile):
		return image.Image{}, &BuildError{Packages: j.derived.Packages, Reason: "what was installed makes no image", Err: err}
	case err == nil:
		b.p.opt.Step("derived")
	}
	return img, err
}

// request is what the build machine is, in the words of any other.
func (b *Builder) request(ctx context.Context, j job, r recipe.Recipe) sandbox.ProvisionRequest {
	limits := b.opt.Limits
	retention := sandbox.RetentionDurable // of its disk, until the build is over
	if _, err := b.p.method(ctx); err != nil {
		retention, limits.DiskBytes = sandbox.RetentionEphemeralZDR, min(limits.DiskBytes, memoryDisk)
	}
	var s unix.Statfs_t
	if unix.Statfs(b.opt.Dir, &s) == nil && retention == sandbox.RetentionDurable {
		limits.DiskBytes = min(limits.DiskBytes, int64(s.Bavail)*s.Bsize/4/4096*4096)
	}
	network := sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}
	if len(r.Destinations) > 0 {
		network = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: r.Destinations}
	}
	// Its own clean-up comes after the last moment of the build.
	until := b.p.opt.Now().Add(time.Duration(limits.MaxDurationSeconds)*time.Second + 2*teardownBound)
	return sandbox.ProvisionRequest{
		Profile:   sandbox.Profile{NetworkPolicy: network, ResourceLimits: limits, RetentionMode: retention},
		RootImage: j.derived.Base, SessionID: "build", RunID: j.derived.Key, ExpiresAt: sandbox.At(until),
	}
}

// upper is where the root of a build machine is written to: in its home, which
// bounds it, and out of its sight.
func (p place) upper() string { return filepath.Join(p.home(), "upper") }

// layRoot mounts the instance's root: the image under a skeleton, and for a build
// the recipe's files in that, and a directory to write into over both.
func (in *instance) layRoot() error {
	if in.building == nil {
		return mountRoot(in.at, in.image.Path, in.mountPoints(), in.resolvConf(), in.p.twin.WritableRoot)
	}
	if err := makeSkeleton(in.at.skeleton(), in.image.Path, in.mountPoints(), nil); err != nil {
		return err
	}
	for _, f := range in.building.Files {
		if err := layFile(in.at.skeleton(), in.image.Path, f); err != nil {
			return err
		}
	}
	if err := likeImage(in.at.skeleton(), in.image.Path); err != nil {
		return err
	}
	work := filepath.Join(in.at.home(), "work")
	err := errors.Join(os.Mkdir(in.at.root(), 0o711), mkdirOwned(in.at.upper(), 0o755, IDBase), mkdirOwned(work, 0o755, IDBase))
	if err != nil {
		return err
	}
	// Whatever the kernel's own defaults: a changed file lies there whole, and a
	// renamed directory with all that is in it.
	options := "redirect_dir=off,metacopy=off,index=off,lowerdir=" + in.at.skeleton() + ":" + in.image.Path + ",upperdir=" + in.at.upper() + ",workdir=" + work
	return wrap("mount overlay on "+in.at.root(), unix.Mount("overlay", in.at.root(), "overlay", unix.MS_NODEV, options))
}

// layFile puts a file of a recipe into the skeleton. Where the image has a link on
// the way, a directory of ours would hide what it leads to.
func layFile(skeleton, image string, f recipe.File) error {
	name := strings.TrimPrefix(path.Clean("/"+f.Path), "/")
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(image, dir)); err == nil && !info.IsDir() {
			// A link above it makes this one look like what it leads to, on the host:
			// nothing is opened, and the outer one is met next.
			return fmt.Errorf("%s: expected a directory in the image at /%s, got %s", f.Path, dir, info.Mode().Type())
		}
	}
	at := skeleton
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		if err := mkdirOwned(at, 0o755, IDBase); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return writeOwned(filepath.Join(skeleton, name), f.Content, os.FileMode(f.Mode).Perm())
}

// likeImage gives the directories of a skeleton the modes and owners that the image's
// have: when something in one changes it is written down, and is the image's from then
// on. What is no part of any image stays as every machine has it.
func likeImage(skeleton, image string) error {
	return filepath.WalkDir(skeleton, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(at, skeleton)
		if slices.Contains(transient, name) {
			return fs.SkipDir
		}
		info, err := os.Lstat(filepath.Join(image, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return fs.SkipDir // it has nothing below it either; no link is followed
		}
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		return errors.Join(os.Lchown(at, int(owner.Uid), int(owner.Gid)), os.Chmod(at, info.Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetgid|fs.ModeSetuid)))
	})
}

// writableRoot reports whether the root is what a build's has to be: the overlay
// that was mounted, with no way to a device.
func writableRoot(at place) bool {
	var s unix.Statfs_t
	return unix.Statfs(at.root(), &s) == nil && int64(s.Type) == unix.OVERLAYFS_SUPER_MAGIC && s.Flags&unix.ST_NODEV != 0 && s.Flags&unix.ST_RDONLY == 0
}

// buildEnvironment is that of a step: the recipe's, and the way out.
func buildEnvironment(in *instance, r recipe.Recipe) []string {
	env := append([]string{}, r.Env...)
	if in.guarded() {
		for name, value := range proxies() {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// step runs one command of a recipe to its end, and ends what it left behind.
func (b *Builder) step(ctx context.Context, in *instance, r recipe.Recipe, j job, s recipe.Step) error {
	names := packageNames(s.Packages)
	if len(names) == 0 {
		names = j.derived.Packages
	}
	report := func(line string) { b.report(BuildProgress{Phase: BuildInstalls, Packages: names, Line: line}) }
	report("")
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	said := listen(read, report)
	proc, err := in.machine.Exec(ctx, machine.Command{Argv: s.Argv, Env: buildEnvironment(in, r), Dir: s.Dir, Stdout: write, Stderr: write})
	write.Close()
	failed := func(reason string, cause error) error {
		return &BuildError{Packages: names, Reason: reason, Output: said.last(read), Refused: b.refused(ctx, in), Err: cause}
	}
	if start, ok := errors.AsType[*machine.StartError](err); ok {
		if s.Missing != "" && errors.Is(start.Err, fs.ErrNotExist) {
			return failed(s.Missing, nil)
		}
		return failed("its installer did not start", start)
	}
	if err != nil {
		return failed("its installer did not start", errors.Join(err, in.machine.Alive()))
	}
	exit, err := proc.Wait(ctx)
	if err != nil {
		if gone := in.machine.Alive(); gone != nil {
			return failed("its machine ended", gone)
		}
		return failed("it was stopped", context.Cause(ctx))
	}
	if err := in.killTree(ctx, proc); err != nil {
		return failed("what it left running could not be ended", err)
	}
	switch {
	case exit.Signal != "":
		return failed(path.Base(s.Argv[0])+" was ended by "+exit.Signal, nil)
	case exit.Code != 0:
		return failed(fmt.Sprintf("%s ended with exit code %d", path.Base(s.Argv[0]), exit.Code), nil)
	}
	said.last(read)
	return nil
}
