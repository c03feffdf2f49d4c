package main

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const (
	pathOnly  = 0x200000 // O_PATH
	directory = pathOnly | syscall.O_DIRECTORY | syscall.O_NOFOLLOW | syscall.O_CLOEXEC

	noSuidDev = syscall.MS_NOSUID | syscall.MS_NODEV
)

// build makes a root of the host's own programs, read-only, and nothing else of
// the host, and enters it.
func build(o order) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", o.Root, "tmpfs", noSuidDev, "size=4m,mode=755"); err != nil {
		return err
	}
	if err := os.Chdir(o.Root); err != nil {
		return err
	}
	steps := []func() error{
		skeleton, system, devices,
		func() error {
			return syscall.Mount("proc", "proc", "proc", noSuidDev|syscall.MS_NOEXEC, "")
		},
	}
	for _, b := range o.Binds {
		steps = append(steps, b.lay)
	}
	steps = append(steps,
		func() error {
			return syscall.Mount("", ".", "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|noSuidDev, "")
		},
		func() error { return syscall.PivotRoot(".", ".") },
		func() error { return syscall.Unmount(".", syscall.MNT_DETACH) },
		func() error { return os.Chdir("/") },
	)
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func skeleton() error {
	var err error
	for _, name := range []string{"proc", "sys", "run", "dev", "etc", "var", "mnt"} {
		err = errors.Join(err, os.Mkdir(name, 0o755))
	}
	id := strconv.Itoa(user)
	for name, content := range map[string]string{
		"passwd": "root:x:0:0::/:/bin/sh\ncheckfu:x:" + id + ":" + id + "::/home/checkfu:/bin/sh\n",
		"group":  "root:x:0:\ncheckfu:x:" + id + ":\n",
		"hosts":  "127.0.0.1 localhost machine\n",
	} {
		err = errors.Join(err, os.WriteFile("etc/"+name, []byte(content), 0o644))
	}
	return err
}

// system lays the host's programs, where it has them.
func system() error {
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc/alternatives", "etc/ld.so.cache"} {
		info, err := os.Lstat("/" + name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink("/" + name)
			if err = errors.Join(err, os.Symlink(target, name)); err != nil {
				return err
			}
			continue
		case info.IsDir():
			err = os.Mkdir(name, 0o755)
		default:
			err = os.WriteFile(name, nil, 0o644)
		}
		if err == nil {
			err = syscall.Mount("/"+name, name, "", syscall.MS_BIND|syscall.MS_REC, "")
		}
		if err = errors.Join(err, restrict(name, true)); err != nil {
			return err
		}
	}
	return nil
}

func devices() error {
	err := syscall.Mount("tmpfs", "dev", "tmpfs", syscall.MS_NOSUID|syscall.MS_NOEXEC, "size=64k,mode=755")
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		err = errors.Join(err, os.WriteFile("dev/"+name, nil, 0o644), syscall.Mount("/dev/"+name, "dev/"+name, "", syscall.MS_BIND, ""))
	}
	for name, target := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		err = errors.Join(err, os.Symlink("/proc/self/fd"+target, "dev/"+name))
	}
	return errors.Join(err, os.Mkdir("dev/shm", 0o755))
}

// lay puts a directory of the instance at its place. It goes by descriptor: any
// name could be a link that an earlier command left there.
func (b bind) lay() error {
	at, err := walk(b.Target)
	if err != nil {
		return err
	}
	err = syscall.Mount(b.Source, numbered(at), "", syscall.MS_BIND|syscall.MS_REC, "")
	if err = errors.Join(err, syscall.Close(at)); err != nil {
		return err
	}
	if at, err = walk(b.Target); err != nil { // the other descriptor is of what lies below
		return err
	}
	return errors.Join(restrict(numbered(at), b.ReadOnly), syscall.Close(at))
}

func numbered(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// restrict makes a mount nosuid, nodev and, if asked, read-only. What the host
// forbids on it has to be said again.
func restrict(path string, readOnly bool) error {
	var held syscall.Statfs_t
	if err := syscall.Statfs(path, &held); err != nil {
		return err
	}
	const relatime = 4096
	flags := uintptr(held.Flags) & (syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME | syscall.MS_NODIRATIME)
	if held.Flags&relatime != 0 {
		flags |= syscall.MS_RELATIME
	}
	if readOnly || held.Flags&syscall.MS_RDONLY != 0 {
		flags |= syscall.MS_RDONLY
	}
	return syscall.Mount("", path, "", syscall.MS_REMOUNT|syscall.MS_BIND|noSuidDev|flags, "")
}

// walk gives a descriptor of a directory of the new root, made where it is
// missing. No component may be a link.
func walk(path string) (int, error) {
	at, err := syscall.Open(".", directory, 0)
	if err != nil {
		return 0, err
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		below, err := syscall.Openat(at, name, directory, 0)
		if err == syscall.ENOENT {
			if err = syscall.Mkdirat(at, name, 0o755); err == nil {
				below, err = syscall.Openat(at, name, directory, 0)
			}
		}
		_ = syscall.Close(at)
		if err != nil {
			return 0, err
		}
		at = below
	}
	return at, nil
}

// loopback is the whole network.
func loopback() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP}
	copy(request.name[:], "lo")
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	err = syscall.Close(fd)
	if errno != 0 {
		err = errno
	}
	return err
}
