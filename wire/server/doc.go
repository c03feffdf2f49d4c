// Package server serves any sandbox.Provider over the wire, as an http.Handler.
//
// It adds to a provider what the wire asks for and package sandbox does not:
// operations that are run once under the id that their caller minted, rollbacks
// that work from that id alone, fencing by lease and epoch, and live processes
// whose output is kept from byte 0 and can be read again from any offset.
//
// # The journal
//
// Every mutating call is an operation. It is written down before the provider is
// called, and its answer after: a repetition joins it while it runs and gets the
// same bytes once it is done; the same id with another body is refused. With a
// store that outlives the process (Options.Journal):
//
//	before the provider is called   durable: an operation found running after a
//	                                restart is indeterminate, and never run again
//	an answer that hands something  durable before the caller learns of it
//	over
//	any other answer                soon after; what a crash takes is indeterminate
//	write_file, stage_active_write, in memory only: running them again changes
//	destroy, destroy_snapshot,      nothing, and no signal outlives its process
//	cleanup, process_signal
//
// So a durable call costs one sync (an allocation two); syncs of calls that come
// at once are shared. Answers are kept whole, up to 34 MiB for one command: they
// lie in the store, not in memory, and the oldest go once there are more than
// Options.ResultBytes. An operation is remembered for 24 hours after what it
// allocated, or worked on, has ended.
//
// # Rollback
//
// While the process lives it is the provider's own compensation. After a restart
// the record alone decides: it names what the provider said it had allocated
// under this id, but only where no other operation had allocated that before. A
// crash between an allocation and its record leaves one that has no name here:
// its rollback says indeterminate, and the provider's own sweep finds it. After
// the first later call that names an allocation nothing undoes it but a destroy.
//
// # Instances and leases
//
// An instance belongs to the lease that it was allocated under. The highest epoch
// of each lease is durable before a call of it has any effect; streams of a lower
// one end within a second, and nothing of a lower one is taken afterwards. An id
// that this server did not hand out names nothing, so that a server which lost
// its journal cannot run a command twice.
//
// # Live processes
//
// A process dies with its server: a later one answers process_lost for it, and
// never an exit. Output is kept in a window of Options.OutputWindow bytes that
// grows with what is written, standard error in one of 64 KiB; nothing that a
// reader does, or fails to do, makes the process wait. A reader that is overtaken
// is told so and the process is killed, because what it lacks is gone.
//
// Trusts: its provider with its own instances. Does not trust: a provider's
// panics, patience or streams; whoever calls, before a token or a pinned
// certificate, and after it with nothing but this wire.
// Bounds: those of package wire, and Options. Bodies are read within a time that
// follows from their length; a reader that stands still is let go of after
// Options.Stall.
// Errors: New and Serve return the operating system's; everything else is an
// answer on the wire. Text of a defect goes to Options.Log alone, tokens nowhere.
// Ownership: Close ends every goroutine and every live process.
// Concurrency: everything may be called at once.
// Source: contract "The operations", "Errors", "openProcess", "Allocation
// handoff"; docs/divergences.md.
package server
