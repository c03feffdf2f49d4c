package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/runc"
	"github.com/checkfu/checkfu/sandbox"
)

// world is what all measurements share.
type world struct {
	n       int
	dir     string
	parent  string // cgroup of every machine and every raw container
	tar     string // `docker save` archive of the image
	image   image.Image
	images  *image.Store
	runtime string // our program under the name runsc
	rep     *report
	guard   string // another build of checkfu-guard, or ""
	raws    int    // containers that were started by rawStart

	providers map[string]*native.Provider
	options   map[string]native.Options // that they were opened with
	closers   []func() error            // in reverse order
}

func newWorld(ctx context.Context, n int) (*world, error) {
	dir, err := os.MkdirTemp("", "checkfu-bench-")
	if err != nil {
		return nil, err
	}
	w := &world{
		n: n, dir: dir, parent: fmt.Sprintf("checkfu-bench-%d", os.Getpid()), runtime: filepath.Join(dir, "runsc"),
		rep:       &report{began: time.Now(), load: loadAverage()},
		providers: map[string]*native.Provider{}, options: map[string]native.Options{},
	}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) prepare(ctx context.Context) error {
	if err := os.Chmod(w.dir, 0o711); err != nil { // a machine's runtime passes through
		return err
	}
	if err := copyFile(self(), w.runtime); err != nil { // by a link the kernel would call it by our name
		return err
	}
	init, err := initbin.Bytes()
	if err != nil {
		return err
	}
	if w.tar, err = busyboxImage(w.dir); err != nil {
		return err
	}
	if w.images, err = image.Open(filepath.Join(w.dir, "images"), image.Options{IDBase: native.IDBase}); err != nil {
		return err
	}
	if w.image, err = w.images.Import(ctx, w.tar); err != nil {
		return err
	}
	sentry, err := gvisor.New(gvisor.Options{Root: w.stateRoot("runsc"), CgroupParent: w.parent})
	if err != nil {
		return err
	}
	w.onClose(sentry.Close)
	for _, d := range []machine.Driver{sentry, runc.New(runc.Options{Root: w.stateRoot("runc"), CgroupParent: "/" + w.parent})} {
		w.options[d.Name()] = native.Options{Dir: w.providerDir(d.Name()), Driver: d, Images: w.images, Init: init, Durable: true}
		p, err := native.New(w.options[d.Name()])
		if err != nil {
			return err
		}
		if lacks := p.Lacks(ctx); len(lacks) > 0 {
			return fmt.Errorf("this host lacks %v", lacks)
		}
		w.providers[d.Name()] = p
	}
	return nil
}

// stateRoot is the runtime's own state directory, which a raw command shares
// with the driver. Short: control sockets lie in it.
func (w *world) stateRoot(driver string) string   { return filepath.Join(w.dir, "state-"+driver) }
func (w *world) providerDir(driver string) string { return filepath.Join(w.dir, "native-"+driver) }

func (w *world) onClose(f func() error) { w.closers = append(w.closers, f) }

// close removes everything. It does not stop at what cannot be removed.
func (w *world) close() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	reapOrphans()
	errs = append(errs, removeCgroups(w.parent))
	for _, m := range mountsBelow(w.dir) {
		errs = append(errs, os.NewSyscallError("unmount "+m, unix.Unmount(m, unix.MNT_DETACH)))
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// request asks for an instance. Its disk is large enough for 10,000 files.
func (w *world) request(driver string, mounts ...sandbox.Mount) sandbox.ProvisionRequest {
	if mounts == nil {
		mounts = []sandbox.Mount{}
	}
	envelope := native.Envelope(driver, runtime.GOARCH)
	return sandbox.ProvisionRequest{
		WorkspaceID: "bench", SessionID: "bench", RunID: "bench", AttemptID: "bench", LeaseID: "bench", LeaseEpoch: 1,
		Target: envelope.Target(),
		Profile: sandbox.Profile{
			ProfileID: "bench", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: w.image.Reference,
			Packages: []sandbox.Package{}, NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 2000, MemoryBytes: 256 << 20, DiskBytes: 512 << 20, MaxProcesses: 128, MaxDurationSeconds: 600},
			RetentionMode:  sandbox.RetentionEphemeralZDR,
		},
		Platform: envelope.Platforms[0], RootImage: w.image.Reference, Mounts: mounts,
		ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}
}

// active is a running instance; end destroys it.
func (w *world) active(ctx context.Context, driver string, mounts ...sandbox.Mount) (id sandbox.InstanceID, end func() error, err error) {
	p := w.providers[driver]
	h, err := p.Provision(ctx, w.request(driver, mounts...))
	if err != nil {
		return "", nil, err
	}
	id = h.Value.InstanceID
	end = func() error { return p.Destroy(context.WithoutCancel(ctx), id) }
	if _, err := p.Activate(ctx, id); err != nil {
		return "", nil, errors.Join(err, end())
	}
	return id, end, nil
}

func command(argv ...string) sandbox.Command {
	return sandbox.Command{
		Executable: argv[0], Arguments: append([]string{}, argv[1:]...), WorkingDirectory: "/",
		Environment: map[string]string{}, TimeoutSeconds: 120, OutputLimitBytes: 1 << 20,
	}
}

// run executes a command that must exit with 0.
func (w *world) run(ctx context.Context, driver string, id sandbox.InstanceID, argv ...string) error {
	return runOf(ctx, w.providers[driver], id, argv...)
}

// runOf is run in a machine of p.
func runOf(ctx context.Context, p *native.Provider, id sandbox.InstanceID, argv ...string) error {
	s, err := p.Execute(ctx, id, command(argv...))
	if err != nil {
		return err
	}
	if s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
		return fmt.Errorf("%s: %+v: %s", strings.Join(argv, " "), s.Exit, s.Stderr)
	}
	return nil
}

// busyboxImage makes the image of the tests: one static busybox.
func busyboxImage(dir string) (string, error) {
	return made(func() string { return imagetest.Busybox(maker{}, dir) })
}

// made calls what makes a file for tests, and says why there is none.
func made(file func() string) (path string, err error) {
	defer func() {
		if stopped, ok := recover().(stop); ok {
			err = errors.New(string(stopped))
		}
	}()
	return file(), nil
}

// maker lets the tests' image be made outside a test.
type maker struct{ testing.TB }

type stop string

func (maker) Helper()           {}
func (maker) Skip(args ...any)  { panic(stop(fmt.Sprint(args...))) }
func (maker) Fatal(args ...any) { panic(stop(fmt.Sprint(args...))) }
