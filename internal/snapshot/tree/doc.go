// Package tree turns a directory tree into one file and back, exactly: modes
// with their special bits, owners, times of change to the nanosecond, hard
// links, symbolic links, extended attributes, holes, odd names, FIFOs and
// sockets (as names: what was in them is gone), empty directories, any depth.
//
// Not kept: times of access and birth, inode flags, and where on a disk it lay.
// Refused, by an *Error that names the path: device nodes, and whatever
// another filesystem covers.
//
// It works by handle: each name is opened beneath the directory that holds it,
// through no link and into no other mount. The caller sees to it that nobody
// writes to the tree meanwhile (the machine is frozen or gone); a tree that
// changes all the same is an error (ErrChanged) or an odd mixture of before and
// after, never a way out of it.
//
// Trusts: the caller's directory. Does not trust: anything in it, and in
// Extract not one byte of the stream.
// Shapes: the form is in form.go. The same tree gives the same bytes.
// Units: sizes and offsets are bytes.
// Bounds: memory is the names of the directories on the way to one file, and 24
// bytes for each file with more than one name; 64 directories are open at most.
// Concurrency: all functions may be called by many goroutines at once.
// Source: design "Providers"; contract "The operations", rows snapshot and
// resume.
package tree
