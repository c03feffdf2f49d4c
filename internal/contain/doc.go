// Package contain reads and writes a directory tree of the host that a hostile
// process is changing at the same moment, and never leaves that tree.
//
// It works by handle, not by path: every name is resolved by the kernel itself
// (openat2 with RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS and NO_XDEV) from
// the descriptor of the tree's root, and what is checked is the descriptor that
// came back. There is no moment between a check and its use, so there is
// nothing to swap. No comparison of path strings decides anything; a kernel
// that cannot do this is refused by Open (ErrUnsupported).
//
// Trusts: the caller's root directory, that it lies on a filesystem (or quota
// project) of the provider's own, and /proc of this process. Does not trust:
// any path given, and any name, link, mode, type or size inside the tree.
// Shapes: paths are raw bytes in a string, slash-separated, relative (see Rel).
// Units: sizes are int64 bytes.
// Errors: every error is an *Error that names the operation, the path and one
// Refusal of a closed set; match with errors.Is(err, ErrNotFound).
// Ownership: a Root owns two descriptors until Close; the directory stays the
// provider's.
// Concurrency: all methods of Root may be called by many goroutines at once.
//
// What it cannot promise: a hard link is another name of the same file, so a
// file reached by one is read and written like any other. The tree must be on
// a filesystem of its own, where such a name cannot lead outside. A directory
// that is moved out of the tree while an operation holds its descriptor is
// still written to by that one operation.
//
// Source: contract "Paths, mounts, and what the Runner admits first" (containment
// must be physical, not textual).
package contain
