// Package keeper lets a session outlive the command that started it, without a
// daemon: each session has one process of its own, its keeper, which owns the
// machine, serves the wire for it on a private unix socket, ends it when it
// expires, and ends with it.
//
// What a session is on disk, below DIR/sessions, a directory of mode 0700:
//
//	ID/lock         flock held by the keeper for as long as it lives
//	ID/record.json  who it is; written before anything is allocated
//	ID/token        what callers must show; mode 0600, in no argument and no
//	                environment
//	ID/s            the socket, mode 0600
//	ID/t            likewise; hands out tunnels to servers in the machine, and takes the
//	                word for a live pause
//	ID/log          what no caller is told, at most 256 KiB
//	ID/commands     what its callers ran, where it keeps what is in its machine; with
//	                commands.old at most 256 KiB
//
// A session that keeps what is in its machine can be paused: its record then names
// a snapshot, and there is no keeper, token or socket. The record is written before
// anybody hears of the pause, and what was kept before is destroyed after that. A
// resumption is a new keeper that takes the lock; until it is kept itself, the
// record of its death is the pause it began from.
//
// The directory is renamed into its place whole, with the lock held, so a
// session is there with all of that or not at all, and an id is taken once. The
// lock is what tells a live keeper from a dead one: it ends with the process that
// holds it, however it ended, and a process id that was used again fools nobody.
//
//	Start   makes a session, or resumes one: starts the keeper and waits until it
//	        serves
//	Open    calls a session that is there
//	List    says which there are, and which are dead
//	End     ends one, or removes what a dead keeper left
//	Hold    takes one in hand that has no keeper; Reserve makes such a one
//	Main    is the keeper itself
//
// Until its starter says Keep, a session hangs on a cord, a socket between the
// two: a starter that dies half-way leaves nothing behind.
//
// Trusts: the directory, which only its owner and root can enter; who holds the
// token with this session's machine. Does not trust: its callers' lives.
// Bounds: one machine for each session; starting and ending are bounded in time.
// Errors: *Error; the operating system's; the provider's.
// Ownership: a keeper owns its machine, and removes the record only when the
// machine is gone.
// Concurrency: everything may be called at once, by any number of processes.
// Source: design "Providers" (a session has a keeper); docs/limits.md.
package keeper
