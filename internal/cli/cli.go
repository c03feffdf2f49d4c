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
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
	"github.com/checkfu/checkfu/internal/state"
)

// app is one invocation.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	args    []string // the command line
	state   string   // --state as given
	started bool     // the command line itself was accepted
	code    int      // exit code of a command that did its work
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
	a.args = args
	if err := root.ExecuteContext(ctx); err != nil {
		if done, ok := errors.AsType[*entered](err); ok {
			return done.code
		}
		if _, ours := errors.AsType[*argument.Error](err); !ours && !a.started {
			err = argument.Wrong("%v; see checkfu --help", err)
		}
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
		Version:       Version,
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			a.started = true
			if err := noneEmpty(cmd); err != nil {
				return err
			}
			return a.enter(cmd, args)
		},
	}
	root.PersistentFlags().StringVar(&a.state, "state", "", "directory of images and machines (default $CHECKFU_STATE, else /var/lib/checkfu for root, else $XDG_STATE_HOME/checkfu)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The words after a mistyped short flag can be a secret ("-eKEY=…").
		message, _, _ := strings.Cut(err.Error(), " in -")
		return argument.Wrong("%s; see %s --help", message, cmd.CommandPath())
	})
	root.SetVersionTemplate("checkfu {{.Version}}\n")
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.runCommand(), a.runsCommand(), a.cpCommand(), a.logsCommand(), a.sessionCommand(), a.shellCommand(), a.forwardCommand(), a.imageCommand(), a.doctorCommand(), a.psCommand(), a.sweepCommand(), a.pruneCommand(),
		a.envelopeCommand(), a.sandboxCommand(), a.egressCommand(), a.modelCommand(), a.providerCommand(), a.schemaCommand(), a.versionCommand(), a.keeperCommand(), exitCodesTopic(), conformanceTopic())
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

// stateDir is where everything is kept, absolute, and in a form that this program
// knows.
func (a *app) stateDir() (string, error) {
	dir, err := a.statePath()
	if err == nil {
		err = state.Check(dir)
	}
	if wrong, ok := errors.AsType[*state.Error](err); ok {
		return "", argument.Wrong("--state: %v", wrong)
	}
	if err != nil {
		return "", err
	}
	return dir, nil
}

func (a *app) statePath() (string, error) {
	dir, from := a.state, "--state"
	if dir == "" {
		dir, from = os.Getenv("CHECKFU_STATE"), "CHECKFU_STATE"
	}
	switch {
	case dir != "":
	case os.Geteuid() == 0 && !userns.Inside():
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

// usableState is stateDir, made where it is missing.
func (a *app) usableState() (string, error) {
	dir, err := a.stateDir()
	if err != nil {
		return "", err
	}
	// Machines run under ids of their own and pass through on the way to
	// their part.
	if err = os.MkdirAll(dir, 0o711); err == nil {
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err == nil {
		return dir, state.Open(dir)
	}
	flag := "--state"
	if a.state == "" && os.Getenv("CHECKFU_STATE") != "" {
		flag = "CHECKFU_STATE"
	}
	return "", argument.Wrong("%s: expected a directory that can be made and written, got %q (%v): run checkfu with sudo, or name another", flag, dir, err)
}

// noneEmpty refuses a flag that was given without a value: it would mean the
// default, which the person who typed an unset variable did not want.
func noneEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = argument.Unexpected("--"+f.Name, "a value", "")
		}
	})
	return err
}

// helpCommand is "checkfu help", which also has topics that are no commands.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Say how a command is used", Example: "  checkfu help run\n  checkfu help exit-codes",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return argument.Unexpected("help", "a command or a topic (see checkfu --help)", strings.Join(args, " "))
			}
			return found.Help()
		},
	}
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
