//go:build linux

package contain

import "golang.org/x/sys/unix"

// Node says which thing stands at a name: the number is the same for as long as
// it exists, whatever its name, and no two that exist at once have the same.
type Node struct {
	Type  Type // Directory also of one that is not empty
	Inode uint64
}

// Stat looks at one name and follows nothing.
// Errors: ErrInvalidPath, ErrOutsideRoot (a parent is a link, or a mount covers
// the name), ErrNotFound, ErrNotDirectory (a parent), ErrDenied.
func (r *Root) Stat(unsafePath string) (Node, error) {
	const op = "stat"
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return Node{}, err
	}
	defer r.leave()
	parent, name := split(rel)
	dir, err := r.resolve(parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Node{}, failure(op, rel, err)
	}
	defer unix.Close(dir)
	var st unix.Statx_t
	if err := r.stat(dir, name, &st); err != nil {
		return Node{}, failure(op, rel, err)
	}
	return Node{typeOf(st.Mode), st.Ino}, nil
}

// typeOf is the type that a mode says.
func typeOf(mode uint16) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return Regular
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFBLK, unix.S_IFCHR:
		return Device
	default:
		return Other
	}
}

// Exchange swaps what stands at a name with what stands at a name of another
// Root on the same mount, in one step of the kernel. Neither is looked at or
// followed; what holds either open keeps what it has.
// Errors: ErrInvalidPath, ErrOutsideRoot (a parent is a link; another mount),
// ErrNotFound (either name), ErrNotDirectory (a parent), ErrDenied.
func (r *Root) Exchange(unsafePath string, other *Root, unsafeOther string) error {
	return r.rename("exchange", unsafePath, other, unsafeOther, unix.RENAME_EXCHANGE)
}

// Take gives a name that is free to what stands at a name of another Root on the
// same mount, which loses it in the same step.
// Errors: as Exchange; ErrExists (the name is not free).
func (r *Root) Take(unsafePath string, other *Root, unsafeOther string) error {
	return r.rename("take", unsafePath, other, unsafeOther, unix.RENAME_NOREPLACE)
}

// Replace is Take also of a name at which something other than a directory stands,
// which is gone in the same step: nobody finds the name free, nor does a crash leave
// it so. A link is replaced itself, never followed.
// Errors: as Exchange; ErrNotRegular (a directory stands there).
func (r *Root) Replace(unsafePath string, other *Root, unsafeOther string) error {
	return r.rename("replace", unsafePath, other, unsafeOther, 0)
}

// rename moves other's name to this one's, or swaps the two.
func (r *Root) rename(op, unsafePath string, other *Root, unsafeOther string, flags uint) error {
	rel, err := r.enter(op, unsafePath)
	if err != nil {
		return err
	}
	defer r.leave()
	from, err := Rel(unsafeOther)
	if err != nil {
		err.(*Error).Op = op
		return err
	}
	if other != r { // to hold one twice could wait for a Close in between
		if err := other.hold(op, from); err != nil {
			return err
		}
		defer other.leave()
	}
	parent, name := split(rel)
	dir, err := r.resolve(parent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return failure(op, rel, err)
	}
	defer unix.Close(dir)
	otherParent, otherName := split(from)
	otherDir, err := other.resolve(otherParent, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return failure(op, from, err)
	}
	defer unix.Close(otherDir)
	if err := unix.Renameat2(otherDir, otherName, dir, name, flags); err != nil {
		return failure(op, rel, err)
	}
	return nil
}
