// Package cli is the command line: it parses, calls and prints, and holds no
// rule of the domain.
//
// Trusts: the person at the terminal, and not their typing. Does not trust:
// names that come from a repository, an image or a machine; they are quoted
// before they are printed.
// Errors: every mistake is one line on standard error, "checkfu: …", that
// names the flag, what was expected and what came; the exit codes are in
// ExitCodes. Values of --env are printed by nothing here.
// Concurrency: Run may be called once at a time.
package cli
