// Package journal keeps the transactions that write into the mounts of a home
// while its workload lives, so that whoever finds one after a crash can put the
// files back or finish.
//
// A transaction is a directory of the home itself that no machine has bound:
//
//	HOME/writes/ID/journal   its record, of one length from beginning to end
//	HOME/writes/ID/N         the body of target N; once published, the file that
//	                         stood there before
//
// Publication swaps body and target in one step of the kernel each, so that the
// old files lie in the directory until the journal says committed. Which of them
// have been swapped is told by their inode numbers, which the record holds: a
// recovery never guesses, and may be interrupted and begun again.
//
// The record is changed in place, each change within one page. A workload that
// has filled its home can so keep nothing from being committed or put back: no
// step after the last body was staged needs space, but for names and directories
// that are new; to take those back needs none.
//
// Trusts: its own directory, which the workload cannot reach. Does not trust:
// anything in a mount; every name there is resolved by handle (package contain).
// Durability: a journal outlives its owner, by any signal, as the home does, and
// like the home not the host: a home that ends with its host is written without a
// flush, and so is what speaks of it.
// Retention: bodies lie where the mount lies: of zero retention in memory. The
// record names paths, and no content.
// Concurrency: a Transaction is used by one goroutine at a time; while one
// publishes or rolls back, nothing else may write in its mount. Others may be
// begun and staged meanwhile.
// Errors: *contain.Error of a target that is in the way; *Error of a record that
// cannot be true; host errors.
// Source: contract "The operations", the paragraph on beginActiveWrite.
package journal
