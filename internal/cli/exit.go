package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// The exit codes that are ours. A command's own codes can be the same numbers:
// the record (--json) tells them apart.
const (
	ExitOK         = 0
	ExitNotReady   = 1   // doctor: the default provider cannot run here
	ExitUsage      = 2   // bad flag, path, image or archive; nothing was done
	ExitConflict   = 7   // runs apply: something of the change conflicts
	ExitTimeout    = 124 // the command was killed at --timeout
	ExitFailure    = 125 // Checkfu or the provider failed
	ExitNotStarted = 126 // the command is there and cannot be started
	ExitNotFound   = 127 // there is no such command
	exitSignal     = 128 // plus the number of the signal that ended the command
)

// ExitCodes is the text of "checkfu help exit-codes".
const ExitCodes = `checkfu run ends with the exit code of the command. Its own codes are:

    2    a flag, path, image or archive is wrong; nothing was provisioned
  124    the command was killed at --timeout; output so far was passed on
  125    checkfu or the provider failed, or the results could not be collected
  126    the command is there and cannot be started
  127    there is no such command in the machine
  128+n  the command was ended by signal n (137 is SIGKILL, 141 is SIGPIPE:
         nobody reads its output any more)
  130    interrupted by Ctrl-C (SIGINT)
  143    interrupted by SIGTERM or SIGHUP

A command can use these numbers too; the record (--json) says which it was.
checkfu doctor ends with 1 where the default provider cannot run. All other
commands end with 0, 2 or 125, but for checkfu runs apply, which ends with 7 where
something conflicts, checkfu egress receipt, which ends with 6 where a receipt does
not stand, checkfu egress test (see its help), and checkfu sandbox, whose codes are
its own (see checkfu help conformance).
`

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: ExitCodes}
}

// exitCode is what a Run ends with.
func exitCode(r *runner.Record, err error) int {
	switch {
	case runner.BadInput(err):
		return ExitUsage
	case r.Cause == runner.CauseInterrupted && (err == nil || r.InstanceID == "" || r.Disposition != ""):
		return exitSignal + signalNumber(r.StopSignal)
	case err != nil:
		return ExitFailure
	}
	switch r.Cause {
	case runner.CauseTimedOut:
		return ExitTimeout
	case runner.CauseOutputClosed:
		return exitSignal + int(unix.SIGPIPE)
	case runner.CauseNotFound:
		return ExitNotFound
	case runner.CauseNotStarted:
		return ExitNotStarted
	}
	return exitOf(r.Exit)
}

func exitOf(e sandbox.Exit) int {
	switch {
	case e.ExitCode != nil:
		return int(*e.ExitCode)
	case e.Signal != "":
		return exitSignal + signalNumber(e.Signal)
	}
	return ExitFailure
}

// signalNumber knows the names of this system and "SIGRTMIN+n".
func signalNumber(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	const firstRealTime, last = 34, 64
	if offset, ok := strings.CutPrefix(name, "SIGRTMIN"); ok {
		if n, err := strconv.Atoi("0" + strings.TrimPrefix(offset, "+")); err == nil && firstRealTime+n <= last {
			return firstRealTime + n
		}
	}
	return int(unix.SIGKILL)
}
