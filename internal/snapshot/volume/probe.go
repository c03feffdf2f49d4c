package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
)

// Available says why this host cannot have images, as far as can be seen without
// making one, or nil. Probe makes one.
func Available() error {
	for _, name := range []string{program, checker} {
		if _, err := find(name); err != nil {
			return err
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return control.Close()
}

// probePrefix begins the name of a directory in which somebody tries. It is locked
// as long as they do.
const probePrefix = ".volume-probe-"

// Probe makes, mounts, freezes, looks over and removes a small image in dir, and
// says why that cannot be, or nil. What killed probes left there it removes.
// Errors: ErrUnavailable; the context's; host errors.
func Probe(ctx context.Context, dir string) (err error) {
	if err := Sweep(dir); err != nil {
		return err
	}
	work, held, err := workplace(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dismantle(work), held.Close()) }()
	if err := Available(); err != nil {
		return err
	}
	image, at := filepath.Join(work, "image"), filepath.Join(work, "mount")
	if err := Create(ctx, image, 1<<20, 64); err != nil {
		return err
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	if err := try(ctx, image, at); err != nil {
		return err
	}
	if err := dismount(at); err != nil {
		return err
	}
	return Check(ctx, image)
}

// try mounts an image and freezes it for a moment.
func try(ctx context.Context, image, at string) error {
	v, err := Mount(image, at)
	if err != nil {
		return err
	}
	f, err := v.Freeze(ctx)
	if err == nil {
		_, err = f.Thaw()
	}
	return errors.Join(err, v.Close())
}

// workplace makes a directory and locks it.
func workplace(ctx context.Context, dir string) (string, *os.File, error) {
	for {
		work, err := os.MkdirTemp(dir, probePrefix)
		if err != nil {
			return "", nil, err
		}
		held, err := lock.Open(ctx, work, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, lock.Exclusive)
		if errors.Is(err, os.ErrNotExist) {
			continue // a sweep took it for an abandoned one before it was locked
		}
		if err != nil {
			return "", nil, errors.Join(err, os.RemoveAll(work))
		}
		return work, held, nil
	}
}

// Sweep removes from dir what probes left that were killed: their directories, and
// with their mounts their loop devices. It leaves those that are at work.
// Errors: host errors. One that cannot be removed does not keep the others.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), probePrefix) && e.IsDir() {
			err = errors.Join(err, sweep(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

func sweep(work string) error {
	f, err := os.OpenFile(work, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its prober was faster
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if got, err := lock.Try(f, lock.Exclusive); !got {
		return err
	}
	return dismantle(work)
}

// dismantle removes all that a probe can have made, at whatever moment it ended.
func dismantle(work string) error {
	if err := dismount(filepath.Join(work, "mount")); err != nil {
		return err
	}
	return os.RemoveAll(work)
}

// dismount takes off what is mounted at a directory, if anything is.
func dismount(at string) error {
	// One who died in between left it frozen, and what is frozen cannot be unmounted.
	if _, err := Thaw(at); err != nil {
		return err
	}
	// Detached: a mount namespace that somebody makes at this moment has a copy, for
	// as long as it lasts.
	err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	if err == unix.EINVAL || err == unix.ENOENT { // none is
		return nil
	}
	return os.NewSyscallError("umount", err)
}
