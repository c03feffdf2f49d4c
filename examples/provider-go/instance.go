package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/checkfu/checkfu/sandbox"
)

// instance is one machine that may run commands.
type instance struct {
	base  string            // its directory; of root, a tmpfs
	roots map[string]string // path of the machine: directory here
	binds []bind            // the same, the deepest last

	staging sync.RWMutex // a write holds it to read, an activation to write

	mu      sync.Mutex
	value   sandbox.Instance // only State changes
	seen    sandbox.Timestamp
	gone    bool
	running map[*running]bool
	live    *process
}

// newInstance makes the places that a workload may see, each a directory. fill
// may put something there before anybody else sees it.
func newInstance(base string, value sandbox.Instance, fill func(*instance) error) (i *instance, err error) {
	i = &instance{base: base, value: value, seen: now(), roots: map[string]string{}, running: map[*running]bool{}}
	if err := os.Mkdir(base, 0o711); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.erase())
		}
	}()
	if value.ExpiresAt != "" { // before anything is mounted over it
		if err := date(base, value.ExpiresAt); err != nil {
			return nil, err
		}
	}
	if !rootless {
		// Its size is the disk limit; it is memory, and gone with this program.
		size := strconv.FormatInt(value.Profile.ResourceLimits.DiskBytes, 10)
		if err := syscall.Mount("tmpfs", base, "tmpfs", noSuidDev, "mode=711,size="+size); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(filepath.Join(base, "root"), 0o711); err != nil {
		return nil, err
	}
	for number, b := range plan(value.Mounts) {
		b.Source = filepath.Join(base, "mount-"+strconv.Itoa(number))
		if err := errors.Join(os.Mkdir(b.Source, 0o755), os.Chown(b.Source, owner, owner)); err != nil {
			return nil, err
		}
		i.roots[b.Target] = b.Source
		i.binds = append(i.binds, b)
	}
	if fill != nil {
		if err := fill(i); err != nil {
			return nil, err
		}
	}
	for _, b := range i.binds {
		if outer := i.around(b.Target); outer != "" { // where it is mounted has to be there, and stays
			at, err := descend(i.roots[outer], parts(b.Target, outer), true)
			if err != nil {
				return nil, err
			}
			if err := syscall.Close(at); err != nil {
				return nil, err
			}
		}
	}
	return i, nil
}

// volatilePlaces are in no snapshot.
var volatilePlaces = []string{"/tmp", "/dev/shm"}

// plan is every place that an instance has, an outer one before an inner. It
// depends on the mounts alone: a snapshot finds its directories by their number.
func plan(mounts []sandbox.Mount) []bind {
	var all []bind
	for _, m := range mounts {
		all = append(all, bind{Target: m.MountPath, ReadOnly: m.Access == sandbox.AccessReadOnly})
	}
	all = append(all, bind{Target: sandbox.OutputPath}, bind{Target: sandbox.HomePath}, bind{Target: sandbox.ControlRoot, ReadOnly: true})
	for _, path := range volatilePlaces {
		all = append(all, bind{Target: path})
	}
	slices.SortFunc(all, func(a, b bind) int { return strings.Compare(a.Target, b.Target) })
	return all
}

// around is the deepest place that holds another one's path, or "".
func (i *instance) around(path string) string {
	deepest := ""
	for root := range i.roots {
		if root != path && sandbox.Within(path, root) && len(root) > len(deepest) {
			deepest = root
		}
	}
	return deepest
}

// territory is the mount that owns path, or the output tree, or "": nothing else
// can be staged in or read from.
func (i *instance) territory(path string) string {
	if m, ok := sandbox.OwningMount(i.value.Mounts, path); ok {
		return m.MountPath
	}
	if sandbox.Within(path, sandbox.OutputPath) {
		return sandbox.OutputPath
	}
	return ""
}

// inner says what below root belongs to deeper places.
func (i *instance) inner(root string) map[string]bool {
	skip := map[string]bool{}
	for other := range i.roots {
		if other != root && sandbox.Within(other, root) {
			skip[strings.Join(parts(other, root), "/")] = true
		}
	}
	return skip
}

// parts are the components of path below root.
func parts(path, root string) []string {
	rest := strings.Trim(strings.TrimPrefix(path, root), "/")
	if rest == "" {
		return []string{}
	}
	return strings.Split(rest, "/")
}

// end lets nobody in any more and kills what runs. It returns once nothing of
// it lives.
func (i *instance) end(ctx context.Context) error {
	i.mu.Lock()
	i.gone = true
	all := make([]*running, 0, len(i.running))
	for r := range i.running {
		all = append(all, r)
	}
	i.mu.Unlock()
	for _, r := range all {
		if err := r.kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// erase leaves nothing on the disk. It may be called again.
func (i *instance) erase() error {
	if !rootless {
		if err := syscall.Unmount(i.base, syscall.MNT_DETACH); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
			return err
		}
	}
	return os.RemoveAll(i.base)
}
