package volume

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Attach gives an image a loop device that ends with its last user, this Volume or a
// mount. The image has its size; its bytes may follow until it is mounted. Whoever
// attaches one that is written already waits until all of it is on the host's disk,
// because the kernel does.
// Errors: ErrUnavailable; host errors.
func Attach(image string) (*Volume, error) {
	backing, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close() // the device has it
	v := &Volume{settle: settle}
	// Opened once more, and before: what the device is told of lost writes is not
	// told to the same opened file again.
	if v.image, err = os.Open("/proc/self/fd/" + strconv.Itoa(int(backing.Fd()))); err != nil {
		return nil, err
	}
	if v.device, err = attach(backing); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// options of the mount. A session does not outlive its host, so its fsync need not
// reach the host's disk, and no workload can make that disk wait for it; Freeze writes
// everything. Tables that were never written are not written for nothing.
//
// No two files share a block of attributes: one of them that is open without a name
// when the image is copied would leave a wrong count behind, and Check does not guess.
const options = "errors=remount-ro,noinit_itable,nobarrier,no_mbcache"

// Mount mounts an attached image, once. Whoever unmounts it ends its loop device too,
// as soon as the Volume is closed.
// Errors: ErrUnavailable; host errors. The Volume is the caller's to close.
func (v *Volume) Mount(at string) error {
	// What somebody, as a watcher of new devices, read before the bytes were there is
	// read again.
	if err := unix.IoctlSetInt(int(v.device.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return os.NewSyscallError("ioctl BLKFLSBUF", err)
	}
	err := unix.Mount(v.device.Name(), at, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, options)
	if err == unix.ENODEV {
		return fmt.Errorf("%w: the kernel has no ext4", ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", v.device.Name(), at, err)
	}
	root, err := open(at)
	if err != nil {
		return errors.Join(err, unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.root, v.at = root, at
	return nil
}

// Mount mounts an image whose bytes are there, and holds it open.
// Errors: those of Attach and Volume.Mount.
func Mount(image, at string) (*Volume, error) {
	v, err := Attach(image)
	if err != nil {
		return nil, err
	}
	if err := v.Mount(at); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// attempts is how often a loop device that another process was faster to take
// is looked for again.
const attempts = 64

// attach gives an image a loop device and returns it open.
func attach(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer control.Close()
	for range attempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, os.NewSyscallError("ioctl LOOP_CTL_GET_FREE", err))
		}
		device, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			// A kernel may mount nothing that somebody holds open for writing.
			held, err := os.Open(device.Name())
			return held, errors.Join(err, device.Close())
		}
		device.Close()
		if err != unix.EBUSY {
			return nil, os.NewSyscallError("ioctl LOOP_CONFIGURE", err)
		}
	}
	return nil, fmt.Errorf("no loop device: another process was faster %d times", attempts)
}
