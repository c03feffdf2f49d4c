//go:build linux

package contain

import (
	"encoding/hex"

	"golang.org/x/sys/unix"
)

// leavesOf makes the entries of some names of a directory.
func (k *worker) leavesOf(some work) error {
	defer some.dir.release()
	for _, n := range some.names {
		path := join(some.path, n.text)
		err := k.leaf(some.dir.fd, n, path)
		if err != nil {
			return changed(path, err)
		}
	}
	return nil
}

// leaf makes the entry of one name. What is under the name by now decides,
// not what getdents said; if it is replaced between two looks, it is looked at
// once more.
func (k *worker) leaf(dir int, n name, path string) error {
	err := k.look(dir, n, path)
	switch err {
	case unix.ENOENT, unix.ELOOP, errNotRegular, inMotion, notLink:
		err = k.look(dir, name{n.text, unix.DT_UNKNOWN}, path)
	}
	if err == notLink {
		err = inMotion
	}
	return err
}

const (
	inMotion = unix.EAGAIN // a file that changed while it was read, or is under a lease
	notLink  = unix.EINVAL // readlink's answer when the link has been replaced
)

func (k *worker) look(dir int, n name, path string) error {
	if k.options.Digests && n.kind == unix.DT_REG {
		return k.digest(dir, n.text, path)
	}
	var st unix.Statx_t
	if err := k.root.stat(dir, n.text, &st); err != nil {
		return err
	}
	entry := Entry{Path: path, Mode: uint32(st.Mode) & 0o7777}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if k.options.Digests {
			return k.digest(dir, n.text, path)
		}
		entry.Type, entry.Size = Regular, int64(st.Size)
	case unix.S_IFDIR:
		return k.pushDirectory(path)
	case unix.S_IFLNK:
		length, err := unix.Readlinkat(dir, n.text, k.buffer)
		if err != nil {
			return err
		}
		entry.Type, entry.Target = Symlink, string(k.buffer[:length])
	case unix.S_IFIFO:
		entry.Type = FIFO
	case unix.S_IFSOCK:
		entry.Type = Socket
	case unix.S_IFBLK, unix.S_IFCHR:
		entry.Type = Device
	default:
		entry.Type = Other
	}
	k.entries = append(k.entries, entry)
	return nil
}

// digest reads one regular file. Its size and change time are the same before
// and after, or it is in motion.
func (k *worker) digest(dir int, name, path string) error {
	fd, before, err := k.root.openRegular(openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if k.options.MaximumBytes > 0 {
		if err := k.count(&k.bytes, before.Size, k.options.MaximumBytes, path, ErrTooLarge); err != nil {
			return err
		}
	}
	if err := k.read(fd, before.Size, path); err != nil {
		return err
	}
	var after unix.Stat_t
	if err := unix.Fstat(fd, &after); err != nil {
		return err
	}
	if after.Size != before.Size || after.Ctim != before.Ctim || after.Mode != before.Mode {
		k.bytes.Add(-before.Size) // it will be read again
		return inMotion
	}
	k.entries = append(k.entries, Entry{
		Path: path, Type: Regular, Size: before.Size, Mode: before.Mode & 0o7777, Digest: k.sum(),
	})
	return nil
}

// read hashes exactly size bytes.
func (k *worker) read(fd int, size int64, path string) error {
	k.hash.Reset()
	for left := size; left > 0; {
		if err := k.ctx.Err(); err != nil {
			return failure("list", path, err)
		}
		n, err := unix.Read(fd, k.buffer[:min(left, int64(len(k.buffer)))])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			k.bytes.Add(-size)
			return inMotion
		}
		k.hash.Write(k.buffer[:n])
		left -= int64(n)
	}
	return nil
}

func (k *worker) sum() string {
	const prefix = "sha256:"
	var sum [32]byte
	var text [len(prefix) + 64]byte
	k.hash.Sum(sum[:0])
	copy(text[:], prefix)
	hex.Encode(text[len(prefix):], sum[:])
	return string(text[:])
}
