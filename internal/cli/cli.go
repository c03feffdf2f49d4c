package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
)

// app is one invocation.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	state   string // --state as given
	started bool   // the command line itself was accepted
	code    int    // exit code of a command that did its work
}

// Run does what args say (without the program's own name) and returns the exit
// code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		a.complain(err)
		return a.codeOf(err)
	}
	return a.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "checkfu",
		Short: "Run untrusted work on a repository inside a checked sandbox",
		Long: `Checkfu runs a command on a copy of your repository inside a sandbox, checks
every answer of what provides that sandbox, and hands back a patch, an output
folder and a record of what was enforced and by whom.`,
		Example: `  checkfu doctor                            # what this machine can do
  checkfu image build-base                  # once: a Debian base image
  checkfu run --repo . -- make test         # the work itself`,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		PersistentPreRun: func(*cobra.Command, []string) { a.started = true },
	}
	root.PersistentFlags().StringVar(&a.state, "state", "", "directory of images and machines (default $CHECKFU_STATE, else /var/lib/checkfu for root, else $XDG_STATE_HOME/checkfu)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		// The words after a mistyped short flag can be a secret ("-eKEY=…").
		message, _, _ := strings.Cut(err.Error(), " in -")
		return argument.Wrong("%s", message)
	})
	root.AddCommand(a.runCommand(), a.imageCommand(), a.doctorCommand(), a.psCommand(), a.sweepCommand(),
		a.envelopeCommand(), a.versionCommand(), exitCodesTopic())
	return root
}

// complain prints an error as one line.
func (a *app) complain(err error) {
	fmt.Fprintf(a.stderr, "checkfu: %s\n", argument.OneLine(err.Error()))
}

func (a *app) codeOf(err error) int {
	var mistake *argument.Error
	if errors.As(err, &mistake) || !a.started {
		return ExitUsage
	}
	return ExitFailure
}

// stateDir is where everything is kept, absolute.
func (a *app) stateDir() (string, error) {
	dir, from := a.state, "--state"
	if dir == "" {
		dir, from = os.Getenv("CHECKFU_STATE"), "CHECKFU_STATE"
	}
	switch {
	case dir != "":
	case os.Geteuid() == 0:
		return all.DefaultDir, nil
	case filepath.IsAbs(os.Getenv("XDG_STATE_HOME")):
		return filepath.Join(os.Getenv("XDG_STATE_HOME"), "checkfu"), nil
	default:
		home, err := os.UserHomeDir()
		if err != nil {
			return "", argument.Wrong("--state: expected a directory: there is no home directory to derive one from")
		}
		return filepath.Join(home, ".local", "state", "checkfu"), nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil || strings.IndexByte(dir, 0) >= 0 {
		return "", argument.Unexpected(from, "a directory", dir)
	}
	if info, err := os.Stat(abs); err == nil && !info.IsDir() {
		return "", argument.Unexpected(from, "a directory", dir)
	}
	return abs, nil
}

// noArguments refuses arguments of commands that take none.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return argument.Unexpected("arguments", "none", args[0])
	}
	return nil
}

// oneArgument asks for exactly one.
func oneArgument(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return argument.Unexpected(name, "exactly one", strings.Join(args, " "))
		}
		return nil
	}
}
