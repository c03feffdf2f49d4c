// Package memory is the deterministic provider: a complete implementation of
// the contract, every optional member included, on machines that are data in
// this process. Suites trust it as their reference; it confines nothing real.
//
// Time comes from an injected [Clock], ids from a seed and a counter; there is
// no randomness, no wall clock, no real process, file or socket. The same
// calls in the same order give the same bytes.
//
// # The machine
//
// A machine is a small file system (regular files with permission bits,
// directories, symbolic links, FIFO, socket and device markers) and an
// interpreter of a fixed set of programs, all run by user 10001. The workload
// may change read-write mounts, the output tree, /home/checkfu and /tmp, and
// nothing else; disk_bytes counts content, names and 256 bytes for each file.
//
// Programs, in /bin (also found as /usr/bin), a part each of what their
// namesakes do on a real machine:
//
//	cat [FILE…]   echo [-n] ARG…   printf FORMAT ARG…   true   false   sleep SECONDS
//	head -c|-n N [FILE…]   wc -c|-l [FILE…]   sha256sum [FILE…]   tee [-a] [FILE…]
//	yes [ARG…]   seq [FIRST] LAST   test EXPR   [ EXPR ]   env   pwd   id -u|-g   uname [-m]
//	mkdir [-p] DIR…   rm [-rf] PATH…   ln -s[fn] TARGET PATH   mv FROM TO   touch FILE…
//	mkfifo PATH…   chmod OCTAL|+x FILE…   ls [-aA1] [PATH…]   readlink PATH
//	nc -z|-w SECONDS HOST PORT   connect HOST PORT   sh -c SCRIPT [NAME ARG…]   sh FILE [ARG…]   sh
//
// connect, which real machines do not have, says "connected" or fails. Both
// probes succeed on an allowlist only for the very text HOST PORT of a
// destination, never with network none, and always when unrestricted: there is
// nothing at the other end. An executable file that begins with the line
// "#!/bin/sh" is a program too, and [Options] can add programs written in Go.
//
// sh knows this part of POSIX sh, in which a text means what it means to a
// real one; anything else is a syntax error (status 2), never a guess:
//
//	list:        pipeline { ; | newline | && | || } …
//	pipeline:    [!] command { | command }
//	command:     [NAME=WORD…] WORD… with redirections, or
//	             while LIST; do LIST; done   or   if LIST; then LIST; [else LIST;] fi
//	redirection: < > >> 2> 2>> >&2 2>&1 (and 1> and so on)
//	word:        text, \x, '…', "…", $NAME ${NAME} $0…$9 $# $@ $? $$
//	builtin:     : cd command -v NAME exec exit export kill [-SIG] $$ read NAME trap ''|- SIG…
//	refused:     command substitution, unquoted * ? [ ~ ( ), &, <<, for, case, functions, aliases
//
// A failed redirection is status 1. A read-only place answers "Read-only file
// system". A FIFO has no other end: opening one waits for ever.
//
// # Time
//
// A command takes simulated time: 500 µs for each simple command, 16 ns for
// each byte moved, and what it sleeps. So sleep takes no real time, an endless
// program meets its timeout after a known amount of work, and a timeout leaves
// exactly what was written before it. In a pipeline each stage has its own
// time and the longest counts; a stage that its reader cuts off does not
// count, because how far it came is the one thing that is up to the scheduler.
// A live process runs in real time, its sleeps wait for the Clock; an exec of its
// shell closes the input or output that it redirects.
//
// # What it cannot show
//
// No resource but disk is metered (max_processes bounds the stages of pipelines
// and how deep scripts nest, to keep a fork bomb from the host); no privilege
// exists; files are named one by
// one, so a submodule is not a leaf of its own; an orphaned instance is one
// past its deadline or fenced by a higher epoch of its lease. Nothing
// watches the clock, so a live process outlasts its instance's deadline until a
// cleanup comes.
//
// Trusts: the caller with its own memory, nothing else: every state rule and
// bound is enforced here although the Runner has done so.
// Errors: nil, a *sandbox.Error, or the context's error. Reasons beside the
// contract's: invalid_request (the cause is a *sandbox.Invalid),
// too_many_entries, not_directory, ancestor_conflict; and expired as the
// Actual of a conflict.
// Ownership: results share no memory with the provider. No goroutine outlives
// its process or its Execute.
// Concurrency: everything may be called by many goroutines at once.
// Source: contract, the whole document; "Conformance" (the memory oracle).
package memory
