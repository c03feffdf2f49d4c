// Package volume keeps a session's files in one image: an ext4 filesystem in a file,
// mounted through a loop device. Its size bounds bytes and files by the kernel's own
// hand, whatever the host's filesystem, and is reserved where that can; a copy of the
// file is a copy of all, exactly, and a copy of what ReadUsed names is a copy of all
// that is not deleted.
//
// The image has no journal: what outlives its host is the snapshot, which is
// taken of a frozen filesystem and forced to the disk, and not the running
// session.
//
// Trusts: the path it is given, and the e2fsprogs of the host. Does not trust: what
// a workload writes in a mounted image (nosuid, nodev, and no byte of the filesystem's
// own form is within its reach), that it ever stops writing (Freeze), and that what was
// written arrived (ErrLost).
// Units: bytes; inodes are counted.
// Bounds: a mount tries for a free loop device at most 64 times, a freeze 5 s.
// Errors: host errors, with what was being done; ErrUnavailable where the host
// cannot have such images at all; ErrRestless, ErrLost, ErrDamaged.
// Ownership: a loop device ends with its last mount and Volume (autoclear), so a
// process that dies at any moment leaves none behind.
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

// ErrUnavailable: this host has no loop devices, no ext4 or no e2fsprogs.
var ErrUnavailable = errors.New("filesystem images are unavailable")

// The programs that make a filesystem and look it over; e2fsprogs has both.
const (
	program = "mkfs.ext4"
	checker = "e2fsck"
)

// features are all that the filesystem has, whatever the host's mke2fs.conf would
// add: no journal, files by extents, times to the nanosecond, checksums of its
// own form.
const features = "none,ext_attr,filetype,sparse_super,large_file,huge_file,dir_index,dir_nlink,extent,extra_isize,flex_bg,metadata_csum,64bit"

// Create makes an image of so many bytes at path, which must not exist, for at
// most so many files, and reserves its space. On an error nothing is left.
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
	err = f.Truncate(bytes)
	if err == nil {
		err = Reserve(f, bytes)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-b", "4096", "-I", "256", "-N", strconv.FormatInt(inodes, 10), "-m", "0",
		"-O", features, "-E", "lazy_itable_init=1,nodiscard", path)
	cmd.Env = environment("MKE2FS_CONFIG=/dev/null")
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
