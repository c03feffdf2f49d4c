package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// tree is one writable or staged directory of an instance: where it lies below
// the home and where the guest sees it.
type tree struct {
	guest    string // guest path
	home     string // relative to the home
	readOnly bool   // sealed at activation
	mode     os.FileMode
	mount    bool // a declared mount
}

// trees lists what an instance has, outermost guest path first so that a
// nested mount lands inside its parent.
func trees(mounts []sandbox.Mount) []tree {
	all := []tree{
		{guest: sandbox.OutputPath, home: "outputs", mode: 0o755},
		{guest: "/tmp", home: "tmp", mode: 0o777 | os.ModeSticky},
		{guest: sandbox.HomePath, home: "user", mode: 0o755},
		{guest: sandbox.ControlRoot, home: "control", mode: 0o755},
	}
	for i, m := range mounts {
		all = append(all, tree{
			guest: m.MountPath, home: "mounts/" + strconv.Itoa(i), mode: 0o755,
			readOnly: m.Access == sandbox.AccessReadOnly, mount: true,
		})
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].guest < all[j].guest })
	return all
}

// mountHome mounts the tmpfs that holds everything the workload can write and
// makes the trees in it. bytes bounds it, and with it the inodes: a file costs
// memory even when it is empty.
func mountHome(at place, bytes int64, all []tree) error {
	if err := os.Mkdir(at.home(), 0o711); err != nil {
		return err
	}
	options := "mode=0711"
	if bytes > 0 {
		options += ",size=" + strconv.FormatInt(bytes, 10) + ",nr_inodes=" + strconv.FormatInt(inodes(bytes), 10)
	}
	if err := mountNoSwap(at.home(), options); err != nil {
		return err
	}
	return layoutHome(at, all)
}

// layoutHome makes the trees of a new home.
func layoutHome(at place, all []tree) error {
	if err := errors.Join(os.Chown(at.home(), 0, IDBase), os.Chmod(at.home(), 0o710), mkdirOwned(filepath.Join(at.home(), "mounts"), 0o711, 0)); err != nil {
		return err
	}
	for _, t := range all {
		if err := mkdirOwned(filepath.Join(at.home(), t.home), t.mode, IDBase+machine.WorkloadID); err != nil {
			return err
		}
	}
	return nil
}

// mountNoSwap mounts a tmpfs that never reaches a disk. Kernels before 6.4 do
// not know noswap; there it is allowed only while the host has no swap.
func mountNoSwap(target, options string) error {
	err := unix.Mount("checkfu", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options+",noswap")
	if !errors.Is(err, unix.EINVAL) {
		return wrap("mount tmpfs on "+target, err)
	}
	swaps, readErr := os.ReadFile("/proc/swaps")
	if readErr != nil || strings.Count(string(swaps), "\n") > 1 {
		return errors.New("this kernel cannot keep a tmpfs out of swap (needs 6.4) and the host has swap; run swapoff -a")
	}
	return wrap("mount tmpfs on "+target, unix.Mount("checkfu", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options))
}

// placeholders makes, inside a parent mount, the directories on which nested
// mounts will be put. Where a staged file took that name activation fails: the
// file would be hidden.
func placeholders(at place, all []tree) error {
	for _, inner := range all {
		outer, ok := parentTree(all, inner.guest)
		if !ok {
			continue
		}
		root, err := contain.Open(filepath.Join(at.home(), outer.home), workloadOwned())
		if err != nil {
			return err
		}
		err = makeParents(root, strings.TrimPrefix(inner.guest, outer.guest+"/"))
		if err = errors.Join(err, root.Close()); err != nil {
			return fmt.Errorf("mount point %s inside %s: %w", inner.guest, outer.guest, err)
		}
	}
	return nil
}

// makeParents makes rel and every directory above it, and takes those that are
// already there.
func makeParents(root *contain.Root, rel string) error {
	for i := 0; i <= len(rel); i++ {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		if err := root.Mkdir(rel[:i], 0o755); err != nil && !errors.Is(err, contain.ErrExists) {
			return err
		}
	}
	return nil
}

// parentTree returns the deepest other tree that holds guest.
func parentTree(all []tree, guest string) (tree, bool) {
	var found tree
	for _, t := range all {
		if t.guest != guest && sandbox.Within(guest, t.guest) && len(t.guest) > len(found.guest) {
			found = t
		}
	}
	return found, found.guest != ""
}

// mountRoot joins a skeleton of mount points and the shared image into one
// read-only root. Without the skeleton a runtime would write its mount points
// into the tree that all sandboxes share.
func mountRoot(at place, image string, points []string, resolvConf []byte, writable bool) error {
	if err := makeSkeleton(at.skeleton(), image, points, resolvConf); err != nil {
		return err
	}
	if err := os.Mkdir(at.root(), 0o711); err != nil {
		return err
	}
	options := "lowerdir=" + at.skeleton() + ":" + image
	var flags uintptr = unix.MS_RDONLY
	if writable { // a twin of a test
		for _, dir := range []string{"upper", "work"} {
			if err := mkdirOwned(filepath.Join(at.home(), dir), 0o755, IDBase); err != nil {
				return err
			}
		}
		options += ",upperdir=" + filepath.Join(at.home(), "upper") + ",workdir=" + filepath.Join(at.home(), "work")
		flags = 0
	}
	return wrap("mount overlay on "+at.root(), unix.Mount("overlay", at.root(), "overlay", flags|unix.MS_NODEV, options))
}

// makeSkeleton makes the directories and files on which things are mounted.
func makeSkeleton(skeleton, image string, points []string, resolvConf []byte) error {
	points = append([]string{"/proc", "/sys", "/dev", filepath.Dir(machine.InitPath)}, points...)
	if err := mkdirOwned(skeleton, 0o755, IDBase); err != nil {
		return err
	}
	for _, point := range points {
		path := skeleton
		for name := range strings.SplitSeq(strings.TrimPrefix(point, "/"), "/") {
			path = filepath.Join(path, name)
			if err := mkdirOwned(path, 0o755, IDBase); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
	}
	if err := writeOwned(filepath.Join(skeleton, machine.InitPath), nil, 0o755); err != nil {
		return err
	}
	if err := writeAccounts(skeleton, image); err != nil || resolvConf == nil {
		return err
	}
	return writeOwned(filepath.Join(skeleton, "etc", "resolv.conf"), resolvConf, 0o644)
}

// writeAccounts gives the workload's ids a name where the image has none.
func writeAccounts(skeleton, image string) error {
	if err := mkdirOwned(filepath.Join(skeleton, "etc"), 0o755, IDBase); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	id := strconv.Itoa(machine.WorkloadID)
	accounts := []struct{ name, root, line string }{
		{"passwd", "root:x:0:0:root:/:/bin/sh\n", "checkfu:x:" + id + ":" + id + "::" + sandbox.HomePath + ":/bin/sh\n"},
		{"group", "root:x:0:\n", "checkfu:x:" + id + ":\n"},
	}
	root, err := contain.Open(image, contain.Options{})
	if err != nil {
		return err
	}
	defer root.Close()
	for _, a := range accounts {
		have, err := root.ReadFile(context.Background(), "etc/"+a.name, 1<<20)
		switch {
		case errors.Is(err, contain.ErrNotFound):
			have = []byte(a.root)
		case err != nil: // something that is no file: the image keeps what it has
			continue
		case bytes.Contains(have, []byte(":"+id+":")):
			continue
		}
		if len(have) > 0 && have[len(have)-1] != '\n' {
			have = append(have, '\n')
		}
		if err := writeOwned(filepath.Join(skeleton, "etc", a.name), append(have, a.line...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unmount takes every mount at path off. Somebody may still be leaving it, so a
// busy one is tried again for two seconds; after that it is detached, which
// ends it when its last holder goes (an owner that overlived the instance's
// expiry holds directories of it open).
func unmount(ctx context.Context, path string) error {
	flags, patience := unix.UMOUNT_NOFOLLOW, time.Now().Add(2*time.Second)
	for {
		if time.Now().After(patience) {
			flags |= unix.MNT_DETACH
		}
		err := unix.Unmount(path, flags)
		switch {
		case err == nil:
			continue // a second mount may lie below the first
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil // not a mount, or not there
		case !errors.Is(err, unix.EBUSY):
			return wrap("unmount "+path, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("unmount %s: %w (%w)", path, err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// filesystemLimit reads back the size of a mounted home.
func filesystemLimit(at place) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(at.home(), &s); err != nil {
		return 0, wrap("statfs "+at.home(), err)
	}
	return int64(s.Blocks) * s.Bsize, nil
}

func workloadOwned() contain.Options {
	return contain.Options{Owner: &contain.Owner{UID: IDBase + machine.WorkloadID, GID: IDBase + machine.WorkloadID}}
}

func mkdirOwned(path string, mode os.FileMode, owner int) error {
	if err := os.Mkdir(path, mode.Perm()); err != nil {
		return err
	}
	return errors.Join(os.Chown(path, owner, owner), os.Chmod(path, mode))
}

func writeOwned(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	return errors.Join(err, f.Chown(IDBase, IDBase), f.Chmod(mode), f.Close())
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
