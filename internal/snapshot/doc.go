// Package snapshot keeps captured sessions on the host's disk: capture, clone,
// restore, destroy and sweep, each whole or not at all.
//
// What a store is on the disk:
//
//	version                     names this form
//	lock                        held for moments, around the names in staging
//	snapshots/ID/manifest.json  identity, expiry, mount plan, digests; sealed
//	snapshots/ID/content        what was captured, in one file
//	snapshots/ID/live/          the files of a live checkpoint of the same moment
//	staging/ID                  one that is being made; locked by who makes it
//	trash/ID                    one that is being removed
//
// A snapshot is made in staging, forced to the disk (content, manifest, their
// directory) and renamed; only then it is there, and only after the directory
// of snapshots is forced too is it acknowledged. It goes by one rename into
// trash. So a process that is killed at any moment leaves a whole snapshot, or
// something in staging or trash that the next Open or Sweep removes.
//
// The content is a filesystem image (FormImage, see package volume) or a stream
// of a tree (FormTree, see package tree). Both are one file to which nobody writes
// once it is published: a restore copies it. So a clone has a manifest of its own, and
// of the bytes what costs nothing: blocks that the filesystem shares (FICLONE), else
// one more name of the file (a hard link). What becomes of its source is all the same
// to it. Every restore reads all bytes, and compares them.
// Holes stay holes, and of an image only what its filesystem has in use is kept: what a
// session deleted is not. Choose says what a host offers.
//
// Trusts: its own directory, and the caller, that nobody writes to what is being
// captured. Does not trust: that the bytes on the disk are still those that were
// written. Restore compares every one with the digests of the manifest before
// anybody sees it.
// Shapes: Manifest. Units: bytes; times are the contract's timestamps.
// Errors: *Error; kinds ErrNotFound, ErrExpired, ErrMismatch, ErrDamaged,
// ErrUnsupported. The provider turns them into those of the contract.
// Ownership: the store owns everything in its directory. What Restore makes is
// the caller's.
// Concurrency: all methods may be called by many goroutines and processes.
// Custody: the bytes lie on this host and die with it (snapshot_custody is
// runner).
// Source: contract "The operations", rows snapshot to cleanup; "Cleanup and
// pinning"; design 3, points 13 to 15.
package snapshot
