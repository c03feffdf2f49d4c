package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Options say where the driver keeps what it needs.
type Options struct {
	// Root is the directory of runc's own state, for the use of this driver
	// alone. It is made, mode 0700, when it does not exist.
	Root string
	// CgroupParent is the cgroup, in every hierarchy, below which each machine
	// has its own; "/checkfu" if empty.
	CgroupParent string
}

type driver struct {
	root   string
	parent string
}

// New returns the driver. It looks at nothing yet: Probe says whether it can
// work here.
func New(o Options) machine.Driver {
	if o.CgroupParent == "" {
		o.CgroupParent = "/checkfu"
	}
	return &driver{root: o.Root, parent: filepath.Clean("/" + o.CgroupParent)}
}

// Name implements machine.Driver.
func (d *driver) Name() string { return "runc" }

// SpecError says which field of a Spec the driver cannot use.
type SpecError struct {
	Field string
	Want  string
	Got   string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("runc: spec %s: expected %s, got %q", e.Field, e.Want, e.Got)
}

// checkID keeps an id from naming anything but one machine.
func checkID(id string) error {
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return &SpecError{Field: "ID", Want: "32 lower-case hex characters", Got: id}
	}
	return nil
}

func check(s machine.Spec) error {
	if err := checkID(s.ID); err != nil {
		return err
	}
	paths := []struct{ field, path string }{{"StateDir", s.StateDir}, {"Rootfs", s.Rootfs}}
	init := false
	for i, b := range s.Binds {
		field := "Binds[" + strconv.Itoa(i) + "]"
		paths = append(paths, struct{ field, path string }{field + ".Source", b.Source},
			struct{ field, path string }{field + ".Destination", b.Destination})
		if b.Destination == machine.InitPath {
			init = b.ReadOnly
		}
	}
	for i, f := range s.Forwards {
		paths = append(paths, struct{ field, path string }{"Forwards[" + strconv.Itoa(i) + "].Socket", f.Socket})
	}
	for _, p := range paths {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path {
			return &SpecError{Field: p.field, Want: "a clean absolute path", Got: p.path}
		}
	}
	switch {
	case s.Build:
		return &SpecError{Field: "Build", Want: "false: packages are installed by gVisor, behind a kernel of its own", Got: "true"}
	case !init:
		return &SpecError{Field: "Binds", Want: "the guest init, read-only, at " + machine.InitPath, Got: ""}
	case s.IDBase < machine.IDs || s.IDBase > ^uint32(0)-machine.IDs:
		return &SpecError{Field: "IDBase", Want: "a block of ids outside the first", Got: strconv.Itoa(int(s.IDBase))}
	case s.Netns != "" && !filepath.IsAbs(s.Netns):
		return &SpecError{Field: "Netns", Want: "an absolute path", Got: s.Netns}
	case s.Twin.HostNetwork != (s.Twin.Netns != ""):
		return &SpecError{Field: "Twin.Netns", Want: "a path exactly when HostNetwork is set", Got: s.Twin.Netns}
	}
	return nil
}

// bundle is where runc's input and output of one machine lie.
func bundle(stateDir string) string { return filepath.Join(stateDir, "runc") }

// cgroup is a machine's cgroup, relative to each hierarchy. runc itself works
// from a sibling: what is cut short while it makes a machine can so be found
// and killed, too.
func (d *driver) cgroup(id string) string   { return filepath.Join(d.parent, id) }
func (d *driver) starting(id string) string { return filepath.Join(d.parent, "start-"+id) }

// Start implements machine.Driver.
func (d *driver) Start(ctx context.Context, s machine.Spec) (machine.Machine, error) {
	if err := check(s); err != nil {
		return nil, err
	}
	if err := d.free(s.ID); err != nil {
		return nil, err
	}
	m, err := d.start(ctx, s)
	if err != nil {
		// ctx may be what failed.
		reap, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(err, d.Reap(reap, s.ID, s.StateDir))
	}
	return m, nil
}

// free refuses an id that is in use: what a failed start removes must be its
// own.
func (d *driver) free(id string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	paths := []string{filepath.Join(d.root, id)}
	for _, h := range all {
		paths = append(paths, filepath.Join(h.mount, d.cgroup(id)), filepath.Join(h.mount, d.starting(id)))
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return &SpecError{Field: "ID", Want: "an id that is not in use", Got: id}
		}
	}
	return nil
}

func (d *driver) start(ctx context.Context, s machine.Spec) (*instance, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	tree, err := unified(all)
	if err != nil {
		return nil, err
	}
	client, theirs, err := guest.Pair()
	if err != nil {
		return nil, err
	}
	m := &instance{
		driver: d, id: s.ID, stateDir: s.StateDir, idBase: s.IDBase,
		client: client, tree: filepath.Join(tree.mount, d.cgroup(s.ID)), trees: all,
		pidfd: -1, paused: make(chan struct{}, 1),
	}
	err = d.run(ctx, s, tree, theirs)
	theirs.Close()
	if err == nil {
		err = client.Ready(ctx)
	}
	if err == nil {
		err = m.adopt(s)
	}
	if err != nil {
		client.Close()
		m.close()
		return nil, err
	}
	return m, nil
}

// run has runc make the machine and start the guest init in it.
func (d *driver) run(ctx context.Context, s machine.Spec, tree hierarchy, socket *os.File) error {
	dir := bundle(s.StateDir)
	for _, path := range []string{d.root, dir} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	config, err := json.Marshal(ociSpec(s, d.cgroup(s.ID)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		return err
	}
	starting := filepath.Join(tree.mount, d.starting(s.ID))
	if err := os.MkdirAll(starting, 0o755); err != nil {
		return err
	}
	group, err := unix.Open(starting, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: starting, Err: err}
	}
	defer unix.Close(group)

	log := filepath.Join(dir, "log")
	cmd := exec.CommandContext(ctx, "runc", "--root", d.root, "--log", log,
		"run", "--detach", "--preserve-fds", "1",
		"--pid-file", filepath.Join(dir, "pid"), "--bundle", dir, s.ID)
	// Nothing of the owner's environment is runc's business.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: group, Setsid: true}
	if err := cmd.Run(); err != nil {
		if said, rerr := os.ReadFile(log); rerr == nil && len(said) > 0 {
			err = fmt.Errorf("%w: %s", err, lastLine(said))
		}
		return fmt.Errorf("runc run: %w", err)
	}
	if err := remove(ctx, starting); err != nil {
		return err
	}
	return nil
}

// lastLine is the last of runc's log, which holds the reason.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	if len(last) > 1000 {
		last = last[:1000]
	}
	return last
}

// Reap implements machine.Driver.
func (d *driver) Reap(ctx context.Context, id, stateDir string) error {
	if err := checkID(id); err != nil {
		return err
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	// runc first, so that nothing is made behind our back; then the machine in
	// the tree that has everything; then what a cut-short runc put elsewhere.
	var errs []error
	for _, name := range []string{d.starting(id), d.cgroup(id)} {
		if tree, err := unified(all); err == nil {
			errs = append(errs, kill(ctx, filepath.Join(tree.mount, name)))
		}
		for _, h := range all {
			errs = append(errs, remove(ctx, filepath.Join(h.mount, name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	bury(ctx, id)
	errs = append(errs, detach(filepath.Join(d.root, id)), os.RemoveAll(filepath.Join(d.root, id)))
	if filepath.IsAbs(stateDir) {
		errs = append(errs, os.RemoveAll(bundle(stateDir)))
	}
	return errors.Join(errs...)
}

// detach takes away what is mounted on the entries of dir. runc mounts a copy of
// itself there for the moment in which it opens it; where it was killed in that
// moment the mount stays, and nothing could remove the file below it.
func detach(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		for { // as often as something was mounted over it
			merr := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if errors.Is(merr, unix.EINVAL) || errors.Is(merr, fs.ErrNotExist) {
				break
			}
			if merr != nil {
				err = errors.Join(err, &fs.PathError{Op: "unmount", Path: path, Err: merr})
				break
			}
		}
	}
	return err
}
