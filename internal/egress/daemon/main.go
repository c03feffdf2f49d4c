package daemon

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/checkfu/checkfu/internal/egress/confine"
)

// Where the inputs lie.
const (
	configFD   = 3
	logFD      = 4
	listenerFD = 5
)

// MaxConfig bounds a configuration, in bytes.
const MaxConfig = 1 << 20

// EndWithin is how long a process may take to end once it was told to.
const EndWithin = 5 * time.Second

// The exit codes.
const (
	ExitOK     = 0 // it ended as it was told to
	ExitFailed = 1 // it served, and failed
	ExitUsage  = 2 // it did not begin: arguments, inputs, configuration or kernel
	ExitLate   = 3 // it was told to end, and did not within EndWithin
)

// Version is the version of these programs; a release build sets it.
var Version = "0.1.0-dev"

// Program is one of the commands.
type Program struct {
	Name    string
	Summary string // one sentence
	// Prepare reads a configuration. Whatever it needs of files or of the host it
	// takes now: the service is confined before it begins.
	Prepare func(Inputs) (Service, error)
}

// Inputs are what a program is given besides its listener.
type Inputs struct {
	Config []byte
	// Log takes whole lines, one in each Write and one after the other. It has
	// SetWriteDeadline, which holds where the log is a pipe or a socket. Its first
	// line says that the program listens; it is not written before Serve.
	Log io.Writer
	// Notes are what the process says of its confinement, for that line.
	Notes []string
}

// Service is a configuration that can be served.
type Service struct {
	// Needs are ports, sockets, the number of descriptors (all of them) and those
	// that are needed beyond the program's own; who to be is the starter's to say.
	Needs confine.Needs
	// Serve answers connections until ctx is done, and returns nil then.
	Serve func(ctx context.Context, listener net.Listener) error
}

// Main is a whole run of a program: the arguments are those after its name.
// Blocks: until the process is told to end, by SIGTERM, SIGINT or the end of file
// on descriptor 0, and EndWithin more.
func Main(p Program, args []string) int {
	needs, done, err := parse(p, args, os.Stdout)
	if done {
		return ExitOK
	}
	if err == nil {
		err = begin(p, needs)
	}
	return end(p, err)
}

// refused is an error before anything was served.
type refused struct{ error }

func end(p Program, err error) int {
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", p.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	if _, ok := err.(refused); ok {
		return ExitUsage
	}
	return ExitFailed
}

// parse reads the arguments, which say who to be and nothing of what to do.
func parse(p Program, args []string, stdout io.Writer) (n confine.Needs, done bool, err error) {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&n.UID, "uid", 0, "become this user `id`; required for root")
	flags.IntVar(&n.GID, "gid", 0, "become this group `id`; required for root")
	flags.BoolVar(&n.NoLandlock, "no-landlock", false, "begin although this kernel has no Landlock; one that has it applies it")
	version := flags.Bool("version", false, "print the version and end")
	switch err := flags.Parse(args); {
	case err == flag.ErrHelp:
		fmt.Fprintf(stdout, "%s: %s\n\n"+
			"It is started with the configuration on descriptor 3, the log on 4 and the\n"+
			"listener on 5, without any environment, and ends on SIGTERM or at the end of\n"+
			"file of its standard input. Exit codes: 0 told to end, 1 failed, 2 did not\n"+
			"begin, 3 told to end and late.\n\n", p.Name, p.Summary)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return n, true, nil
	case err != nil:
		return n, false, refused{err}
	case flags.NArg() > 0:
		return n, false, refused{fmt.Errorf("arguments: expected none, got %q", flags.Arg(0))}
	case *version:
		fmt.Fprintf(stdout, "%s %s %s %s/%s\n", p.Name, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return n, true, nil
	}
	return n, false, nil
}

// begin takes the inputs, confines the process and serves.
func begin(p Program, needs confine.Needs) error {
	if err := inherited(configFD, logFD, listenerFD); err != nil {
		return refused{err}
	}
	config, err := readConfig()
	if err != nil {
		return refused{err}
	}
	listener, err := takeListener()
	if err != nil {
		return refused{err}
	}
	service, err := p.Prepare(Inputs{Config: config, Log: takeLog(), Notes: confine.Notes(needs)})
	if err != nil {
		return refused{err}
	}
	ctx, told := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer told()
	needs.Files, needs.Ports, needs.Unix = service.Needs.Files, service.Needs.Ports, service.Needs.Unix
	needs.Descriptors = append([]int{0, 1, 2, logFD}, service.Needs.Descriptors...)
	if err := confine.Self(needs); err != nil {
		return refused{err}
	}
	go func() {
		// Nobody writes; a byte means nothing.
		_, _ = io.Copy(io.Discard, os.Stdin)
		told()
	}()
	context.AfterFunc(ctx, func() {
		time.AfterFunc(EndWithin, func() { os.Exit(ExitLate) })
	})
	if err := service.Serve(ctx, listener); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
