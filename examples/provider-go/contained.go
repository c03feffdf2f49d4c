package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/checkfu/checkfu/sandbox"
)

// Files of an instance, from outside. Containment is physical: every component is
// opened from the descriptor of the one before, and no link is followed. Text is
// compared nowhere.

// refusal is why a file is not read, in the word of the contract.
type refusal string

func (r refusal) Error() string { return string(r) }

const (
	outside      refusal = sandbox.ReasonOutsideRoot
	notFound     refusal = sandbox.ReasonNotFound
	notRegular   refusal = sandbox.ReasonNotRegular
	notDirectory refusal = sandbox.ReasonNotDirectory
	tooLarge     refusal = refusal(sandbox.RefusedTooLarge)
	tooMany      refusal = sandbox.ReasonTooManyEntries
	changed      refusal = sandbox.ReasonChanged // or under a lease of the workload
)

// moved says that what has a name is another thing by now.
func moved(err error) bool {
	why := refusal("")
	return errors.As(err, &why) && why != changed
}

// descend gives the descriptor of a directory below base; the caller closes it.
// With create, what is missing is made and belongs to owner.
func descend(base string, names []string, create bool) (int, error) {
	at, err := syscall.Open(base, directory, 0)
	if err != nil {
		return 0, err
	}
	for _, component := range names {
		below, err := syscall.Openat(at, component, directory, 0)
		if err == syscall.ENOENT && create {
			if err = syscall.Mkdirat(at, component, 0o755); err == nil {
				below, err = syscall.Openat(at, component, directory, 0)
			}
			if err == nil {
				err = os.Chown(numbered(below), owner, owner)
			}
		}
		if err == syscall.ENOTDIR || err == syscall.ELOOP {
			err = notDirectory
			if mode, merr := modeOf(at, component); merr == nil && mode == syscall.S_IFLNK {
				err = outside
			}
		}
		if err == syscall.ENOENT {
			err = notFound
		}
		_ = syscall.Close(at)
		if err != nil {
			return 0, err
		}
		at = below
	}
	return at, nil
}

// modeOf is the type of what has a name; it opens nothing.
func modeOf(at int, component string) (uint32, error) {
	fd, err := syscall.Openat(at, component, pathOnly|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	var info syscall.Stat_t
	err = errors.Join(syscall.Fstat(fd, &info), syscall.Close(fd))
	return info.Mode & syscall.S_IFMT, err
}

// regular opens a file for reading. A pipe or a device is never touched.
func regular(base string, names []string) (*os.File, error) {
	last := len(names) - 1
	at, err := descend(base, names[:last], false)
	if err == notDirectory {
		err = notFound
	}
	if err != nil {
		return nil, err
	}
	found, err := syscall.Openat(at, names[last], pathOnly|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	_ = syscall.Close(at)
	if err == syscall.ENOENT {
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	defer syscall.Close(found)
	var info syscall.Stat_t
	if err := syscall.Fstat(found, &info); err != nil {
		return nil, err
	}
	switch info.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		// The file that was looked at, whatever its name is now. A workload may hold a
		// lease on it, and an open that waits for it waits for 45 seconds.
		file, err := os.OpenFile(numbered(found), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = changed
		}
		return file, err
	case syscall.S_IFLNK:
		return nil, outside
	}
	return nil, notRegular
}

// read gives the bytes of a regular file, at most maximum of them.
func read(base string, names []string, maximum int64) ([]byte, error) {
	file, err := regular(base, names)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maximum+1))
	if err == nil && int64(len(data)) > maximum {
		err = tooLarge
	}
	return data, err
}

// write puts a file, whole or not at all.
func write(base string, names []string, w sandbox.FileWrite) error {
	last := len(names) - 1
	at, err := descend(base, names[:last], true)
	if err != nil {
		return err
	}
	defer syscall.Close(at)
	switch mode, err := modeOf(at, names[last]); {
	case err == syscall.ENOENT:
	case err != nil:
		return err
	case mode == syscall.S_IFLNK:
		return outside
	case mode != syscall.S_IFREG:
		return notRegular
	}
	temporary := ".checkfu-" + rand.Text()
	fd, err := syscall.Openat(at, temporary, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), names[last])
	mode := fs.FileMode(0o644)
	if w.Executable {
		mode = 0o755
	}
	_, err = file.Write(w.Content)
	err = errors.Join(err, file.Chown(owner, owner), file.Chmod(mode), file.Close())
	if err == nil {
		err = syscall.Renameat(at, temporary, at, names[last])
	}
	if err != nil {
		_ = syscall.Unlinkat(at, temporary)
	}
	return err
}

// list names every regular file below a directory, in ascending order of path
// bytes. skip are directories that belong to another mount.
func list(ctx context.Context, base string, names []string, maximum int64, skip map[string]bool) ([]sandbox.DirEntry, error) {
	entries := []sandbox.DirEntry{}
	err := visit(base, names, skip, func(below []string, _ int, mode uint32) error {
		if err := ctx.Err(); err != nil || mode != syscall.S_IFREG {
			return err
		}
		if int64(len(entries)) == maximum {
			return tooMany
		}
		file, err := regular(base, slices.Concat(names, below))
		if moved(err) {
			return nil
		}
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		// What is appended meanwhile is not read: there may be no end of it.
		sum := sha256.New()
		size, err := io.Copy(sum, io.LimitReader(awaited{ctx, file}, info.Size()))
		entries = append(entries, sandbox.DirEntry{
			Path: strings.Join(below, "/"), Size: size, Digest: sandbox.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil))),
		})
		return err
	})
	slices.SortFunc(entries, func(a, b sandbox.DirEntry) int { return strings.Compare(a.Path, b.Path) })
	return entries, err
}

// awaited is read only while somebody waits for it. A file with holes costs a
// workload nothing, whatever its size.
type awaited struct {
	ctx  context.Context
	from io.Reader
}

func (a awaited) Read(b []byte) (int, error) {
	if err := a.ctx.Err(); err != nil {
		return 0, err
	}
	return a.from.Read(b)
}

// visit calls f for everything below a directory, a directory before what is in
// it; at is the descriptor of its parent. It holds one directory open at a time,
// however deep a workload has nested them.
func visit(base string, names []string, skip map[string]bool, f func(below []string, at int, mode uint32) error) error {
	for waiting := [][]string{{}}; len(waiting) > 0; {
		below := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		at, err := descend(base, slices.Concat(names, below), false)
		if err != nil && len(below) > 0 {
			continue // it went meanwhile
		}
		if err != nil {
			return err
		}
		inner, err := os.ReadDir(numbered(at))
		for _, entry := range inner {
			here := append(slices.Clone(below), entry.Name())
			mode, merr := modeOf(at, entry.Name())
			if merr != nil || mode == syscall.S_IFDIR && skip[strings.Join(slices.Concat(names, here), "/")] {
				continue
			}
			if err = f(here, at, mode); err != nil {
				break
			}
			if mode == syscall.S_IFDIR {
				waiting = append(waiting, here)
			}
		}
		_ = syscall.Close(at)
		if err != nil {
			return err
		}
	}
	return nil
}
