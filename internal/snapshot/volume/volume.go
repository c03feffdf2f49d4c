// Package volume keeps a session's files in one image: an ext4 filesystem in a
// sparse file, mounted through a loop device. Its size bounds bytes and files by
// the kernel's own hand, whatever the host's filesystem; a copy of the file is a
// copy of all, exactly.
//
// The image has no journal: what outlives its host is the snapshot, which is
// taken of a frozen filesystem and forced to the disk, and not the running
// session.
//
// Trusts: the path it is given, and mkfs.ext4 of the host. Does not trust: what
// a workload writes in a mounted image: nosuid, nodev, and no byte of the
// filesystem's own form is within its reach.
// Units: bytes; inodes are counted.
// Bounds: a mount tries for a free loop device at most 64 times.
// Errors: host errors, with what was being done; ErrUnavailable where the host
// cannot have such images at all.
// Ownership: a loop device ends with its last mount (autoclear), so a process
// that dies at any moment leaves none behind.
// Concurrency: all functions may be called by many goroutines and processes, of
// one image by one at a time.
// Source: design "Providers", host-side storage.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnavailable: this host has no loop devices, no ext4 or no mkfs.ext4.
var ErrUnavailable = errors.New("filesystem images are unavailable")

// program makes the filesystem; e2fsprogs has it.
const program = "mkfs.ext4"

// features are all that the filesystem has, whatever the host's mke2fs.conf would
// add: no journal, files by extents, times to the nanosecond, checksums of its
// own form.
const features = "none,ext_attr,filetype,sparse_super,large_file,huge_file,dir_index,dir_nlink,extent,extra_isize,flex_bg,metadata_csum,64bit"

// Create makes an image of so many bytes at path, which must not exist, for at
// most so many files. On an error nothing is left.
func Create(ctx context.Context, path string, bytes, inodes int64) (err error) {
	mkfs, err := find(program)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := errors.Join(f.Truncate(bytes), f.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-b", "4096", "-I", "256", "-N", strconv.FormatInt(inodes, 10), "-m", "0",
		"-O", features, "-E", "lazy_itable_init=1,nodiscard", path)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "MKE2FS_CONFIG=/dev/null"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of %d bytes and %d files: %w: %s", program, bytes, inodes, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// find looks for a program where root has it, also where PATH leaves that out.
func find(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s (install e2fsprogs)", ErrUnavailable, name)
}

// Mount mounts an image. Whoever unmounts it ends its loop device too.
func Mount(image, at string) error {
	device, err := attach(image)
	if err != nil {
		return err
	}
	// The mount holds the device from then on; without it, it ends here.
	defer device.Close()
	err = unix.Mount(device.Name(), at, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "noinit_itable,errors=remount-ro")
	if err == unix.ENODEV {
		return fmt.Errorf("%w: the kernel has no ext4", ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", image, at, err)
	}
	// Only a fresh filesystem has it, and no tree of ours does.
	if err := os.Remove(filepath.Join(at, "lost+found")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, unix.Unmount(at, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// attempts is how often a loop device that another process was faster to take
// is looked for again.
const attempts = 64

// attach gives an image a loop device that ends with its last user.
func attach(image string) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer control.Close()
	backing, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	for range attempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, os.NewSyscallError("ioctl LOOP_CTL_GET_FREE", err))
		}
		device, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device, nil
		}
		device.Close()
		if err != unix.EBUSY {
			return nil, os.NewSyscallError("ioctl LOOP_CONFIGURE", err)
		}
	}
	return nil, fmt.Errorf("no loop device: another process was faster %d times", attempts)
}

// The requests of linux/fs.h that golang.org/x/sys does not have.
const (
	fifreeze = 0xc0045877
	fithaw   = 0xc0045878
)

// Freeze writes everything of a mounted image into its file and holds up every
// writer until Thaw. A process that dies in between leaves a filesystem that Thaw
// must be called for before it can be unmounted.
// Errors: host errors; one that says so where at is no mounted image. To freeze
// what lies below a directory on which none is mounted would freeze the host.
func Freeze(at string) error {
	f, err := open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), fifreeze, 0); err != nil {
		return fmt.Errorf("ioctl FIFREEZE of %s: %w", at, err)
	}
	return nil
}

// Thaw lets the writers of a mounted image go on, and reports whether it was
// frozen until now: whoever copied it meanwhile has one moment only then. One that
// is not frozen, and a directory on which none is mounted, stay as they are.
func Thaw(at string) (frozen bool, err error) {
	f, err := open(at)
	if errors.Is(err, errNone) || errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := unix.IoctlSetInt(int(f.Fd()), fithaw, 0); err {
	case nil:
		return true, nil
	case unix.EINVAL:
		return false, nil
	default:
		return false, fmt.Errorf("ioctl FITHAW of %s: %w", at, err)
	}
}

var errNone = errors.New("no image is mounted there")

// loopMajor is the number of the driver of loop devices.
const loopMajor = 7

// open opens the root of a mounted image.
func open(at string) (*os.File, error) {
	f, err := os.OpenFile(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st)
	if err == nil && (st.Dev_major != loopMajor || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0) {
		err = errNone
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at, err), f.Close())
	}
	return f, nil
}

// Available says why this host cannot have images, as far as can be seen without
// making one, or nil. Probe makes one.
func Available() error {
	if _, err := find(program); err != nil {
		return err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return control.Close()
}

// Probe makes, mounts and removes a small image in dir and says why that cannot
// be, or nil.
func Probe(ctx context.Context, dir string) (err error) {
	work, err := os.MkdirTemp(dir, ".volume-probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	image, at := filepath.Join(work, "image"), filepath.Join(work, "mount")
	if err := Create(ctx, image, 1<<20, 64); err != nil {
		return err
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	if err := Mount(image, at); err != nil {
		return err
	}
	// Detached: a mount namespace that somebody makes at this moment has a copy, for
	// as long as it lasts.
	return unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
}
