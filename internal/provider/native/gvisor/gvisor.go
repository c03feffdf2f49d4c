// Package gvisor is the machine driver "runsc": it links gVisor's runsc and
// starts every machine from our own binary, so no runtime has to be installed.
//
// Shape: a short-lived child of this binary (argv[0] "runsc-create") creates
// the sandbox inside its cgroup; everything after that (exec, wait, signal,
// pause) is a call on the sandbox's control socket, made in process.
//
// Trusts: the Spec. Does not trust: anything inside the machine, and of what
// the sentry answers only that it answers.
// Ownership: see package machine. The driver also makes the process a child
// subreaper, so that it can reap the sandboxes it started; it waits for those
// by pid only.
// Concurrency: every function may be called by many goroutines at once.
// Source: contract "The operations"; concept "The enforcement statement".
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Options says where the driver keeps what is common to its machines.
type Options struct {
	// Root is runsc's state directory, absolute, one for every machine of a
	// host's user: crash sweeps recognise a machine's processes by it. It is
	// made (mode 0711) if it is not there. At most 60 bytes: the control socket
	// of a machine lies in it, and a longer path would not fit a socket address.
	Root string
	// CgroupParent is the name of the host cgroup that holds the cgroups of all
	// machines, for example "checkfu". Machine ID lies at CgroupParent/ID.
	CgroupParent string
	// Rootless says that the process is in the namespaces of package userns: its
	// machines have no cgroup, and so no limit but those that the sentry holds.
	Rootless bool
}

// OptionError says which option cannot be used.
type OptionError struct {
	Field    string
	Expected string
	Got      string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("gvisor options: %s: expected %s, got %q", e.Field, e.Expected, e.Got)
}

// SpecError says which field of a machine.Spec cannot be used.
type SpecError struct {
	Field    string
	Expected string
	Got      string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("gvisor spec: %s: expected %s, got %q", e.Field, e.Expected, e.Got)
}

// Driver starts gVisor machines. Make one with New.
type Driver struct {
	root     string
	parent   string
	rootless bool

	mu      sync.Mutex
	watched map[int]bool // pids that a machine's watcher reaps
}

var _ machine.Driver = (*Driver)(nil)

// maxRoot keeps Root + "/runsc-" + 32 hex + ".sock" within a socket address
// (107 bytes); runsc would otherwise put the socket into /run or /tmp.
const maxRoot = 60

var (
	idForm     = regexp.MustCompile(`^[0-9a-f]{32}$`)
	parentForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
)

// New returns the driver. It touches nothing on the host but the calling
// process: gVisor's log is silenced and the process becomes a subreaper.
//
// Errors: *OptionError. Preconditions: Dispatch was called first in main.
func New(o Options) (*Driver, error) {
	if !filepath.IsAbs(o.Root) || filepath.Clean(o.Root) != o.Root || len(o.Root) > maxRoot {
		return nil, &OptionError{"Root", fmt.Sprintf("a clean absolute path of at most %d bytes", maxRoot), o.Root}
	}
	if !parentForm.MatchString(o.CgroupParent) {
		return nil, &OptionError{"CgroupParent", parentForm.String(), o.CgroupParent}
	}
	silence()
	// The helper that creates a sandbox exits, so the sandbox is re-parented.
	// Where process 1 reaps late a dead sandbox would stay for seconds.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a child subreaper: %w", err)
	}
	return &Driver{root: o.Root, parent: o.CgroupParent, rootless: o.Rootless, watched: map[int]bool{}}, nil
}

// Name returns "runsc", or machine.Rootless.
func (d *Driver) Name() string {
	if d.rootless {
		return machine.Rootless
	}
	return "runsc"
}

// Start makes the machine and returns when its init runs. On error nothing of
// it is left.
//
// Errors: *SpecError for a spec that the driver cannot carry out; ctx's; any
// other means that the host refused.
// Blocks: about 0.1 s; never longer than ctx and the clean-up after it (10 s).
func (d *Driver) Start(ctx context.Context, s machine.Spec) (machine.Machine, error) {
	return d.begin(ctx, s, "")
}

// begin is Start, or Restore of the checkpoint in image.
func (d *Driver) begin(ctx context.Context, s machine.Spec, image string) (machine.Machine, error) {
	if err := check(s); err != nil {
		return nil, err
	}
	m, err := d.start(ctx, s, image)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepBound)
		defer cancel()
		return nil, errors.Join(err, d.Reap(clean, s.ID, s.StateDir))
	}
	return m, nil
}

func check(s machine.Spec) error {
	switch {
	case !idForm.MatchString(s.ID):
		return &SpecError{"ID", "32 lower-case hex characters", s.ID}
	case !filepath.IsAbs(s.StateDir):
		return &SpecError{"StateDir", "an absolute path", s.StateDir}
	case !filepath.IsAbs(s.Rootfs):
		return &SpecError{"Rootfs", "an absolute path", s.Rootfs}
	case s.Twin.SharedHostProcs:
		return &SpecError{"Twin.SharedHostProcs", "false: the sentry has no host processes to share", "true"}
	case s.Twin.HostNetwork && !filepath.IsAbs(s.Twin.Netns):
		return &SpecError{"Twin.Netns", "an absolute path", s.Twin.Netns}
	case s.Netns != "" && !filepath.IsAbs(s.Netns):
		return &SpecError{"Netns", "an absolute path", s.Netns}
	case s.IDBase == 0:
		return &SpecError{"IDBase", "a host id above 0", "0"}
	case s.Limits.CPUMillis <= 0 || s.Limits.MemoryBytes <= 0 || s.Limits.Processes <= 0:
		return &SpecError{"Limits", "values above 0", fmt.Sprintf("%+v", s.Limits)}
	}
	for _, b := range s.Binds {
		if !filepath.IsAbs(b.Source) || !filepath.IsAbs(b.Destination) {
			return &SpecError{"Binds", "absolute paths", b.Source + " at " + b.Destination}
		}
	}
	for _, f := range s.Forwards {
		if !filepath.IsAbs(f.Socket) {
			return &SpecError{"Forwards", "absolute paths", f.String()}
		}
	}
	return nil
}

// Close removes what the driver keeps for all machines together: the empty
// network namespace that gofers share, the shared cgroups and Root, where no
// machine uses them any more. Idempotent. It leaves what is still in use.
func (d *Driver) Close() error {
	netns := filepath.Join(d.root, "null-netns")
	// Parallel first starts may have stacked mounts on one another.
	for range 64 {
		if err := unix.Unmount(netns, unix.MNT_DETACH); err != nil {
			break
		}
	}
	var left []error
	for _, f := range []string{netns, d.root} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			left = append(left, err)
		}
	}
	for _, dir := range cgroupDirs(d.parent) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			left = append(left, &os.PathError{Op: "rmdir", Path: dir, Err: err})
		}
	}
	return errors.Join(left...)
}

func (d *Driver) cgroup(id string) string { return strings.Join([]string{d.parent, id}, "/") }
