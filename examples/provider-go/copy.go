package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// errTooMuch says that a copy is longer than what an instance may hold. A file
// with holes is copied with its zeros, so that this can be.
var errTooMuch = syscall.EFBIG

// copyTree copies directories, regular files and symbolic links, with their
// modes, to a directory that nobody else writes into. Pipes and sockets have no
// bytes, and links of one file to another become files. left is what may yet be
// copied, in bytes.
func copyTree(from, to string, left *int64) error {
	if err := errors.Join(mkdir(to), alike(from, to)); err != nil {
		return err
	}
	return visit(from, nil, nil, func(below []string, at int, mode uint32) error {
		source, target := numbered(at)+"/"+below[len(below)-1], to+"/"+strings.Join(below, "/")
		switch mode {
		case syscall.S_IFDIR:
			if err := mkdir(target); err != nil {
				return err
			}
			fd, err := syscall.Openat(at, below[len(below)-1], directory, 0)
			if err != nil {
				return err
			}
			err = alike(numbered(fd), target)
			return errors.Join(err, syscall.Close(fd))
		case syscall.S_IFLNK:
			text, err := os.Readlink(source)
			if err == nil {
				err = os.Symlink(text, target)
			}
			if err == nil {
				err = os.Lchown(target, owner, owner)
			}
			return err
		case syscall.S_IFREG:
			file, err := regular(from, below)
			if moved(err) {
				return nil
			}
			if err != nil {
				return err
			}
			defer file.Close()
			return copyFile(file, target, left)
		}
		return nil
	})
}

// mkdir makes a directory, or finds it.
func mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// alike gives a directory or file the owner and mode of another.
func alike(from, to string) error {
	var info syscall.Stat_t
	if err := syscall.Stat(from, &info); err != nil {
		return err
	}
	return errors.Join(os.Chown(to, owner, owner), syscall.Chmod(to, info.Mode&0o7777))
}

func copyFile(file *os.File, target string, left *int64) error {
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(file, *left+1))
	if *left -= n; err == nil && *left < 0 {
		err = errTooMuch
	}
	info, serr := file.Stat()
	if err = errors.Join(err, serr, out.Close()); err != nil {
		return err
	}
	return errors.Join(alike(numbered(int(file.Fd())), target), os.Chtimes(target, info.ModTime(), info.ModTime()))
}

// syncAll makes durable all that was written to the file system of dir.
func syncAll(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(sysSyncfs, file.Fd(), 0, 0)
	if err = file.Close(); errno != 0 {
		err = errno
	}
	return err
}
