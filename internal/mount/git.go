package mount

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// gitTimeout bounds one run of git, whatever the caller's context allows: a
// FIFO among the refs of a hostile repository would block it for ever.
const gitTimeout = 5 * time.Minute

// maxListing bounds what one run may list, in bytes.
const maxListing = 128 << 20

// git runs the host's git in a git directory of our own making. It never sees
// the configuration, hooks or attributes of the repository it reads: those
// can name programs to run (fsmonitor, filters, textconv, pagers, ...), and a
// list of the dangerous ones is only as good as its last update. What it does
// see is the object store, the refs and a copy of the index.
type git struct {
	path string   // the program
	temp string   // a directory that is private to this plan
	env  []string // the whole environment
}

func newGit(temp string) (*git, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	home := filepath.Join(temp, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	return &git{path: path, temp: temp, env: []string{
		"PATH=" + filepath.Dir(path),
		"HOME=" + home,
		"XDG_CONFIG_HOME=" + home,
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_EDITOR=false",
		"GIT_PAGER=cat",
	}}, nil
}

// hardening is in force for every run. The git directory is ours, so this is
// the second lock on the door.
var hardening = []string{
	"--no-pager",
	"-c", "core.hooksPath=/dev/null",
	"-c", "core.fsmonitor=false",
	"-c", "core.attributesFile=/dev/null",
	"-c", "core.fsync=none",
	"-c", "core.commitGraph=false", // it repeats what commits say, and can lie
	"-c", "protocol.allow=never",
	"-c", "credential.helper=",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
}

func (g *git) command(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.path, append(append([]string(nil), hardening...), args...)...)
	cmd.Dir = dir
	cmd.Env = append(append([]string(nil), g.env...), env...)
	cmd.WaitDelay = 5 * time.Second
	// A terminal's Ctrl-C goes to the whole foreground group. It is the
	// Runner's to decide what an interrupted Run still collects, so git must
	// not die of it beside us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// stream runs git and hands its output, at most maxListing bytes, to consume;
// if consume fails, git is ended and that failure is the result. stdin may be
// nil.
func (g *git) stream(ctx context.Context, dir string, env []string, stdin io.Reader, consume func(*bufio.Reader) error, args ...string) error {
	return g.streamN(ctx, dir, env, stdin, maxListing, consume, args...)
}

func (g *git) streamN(ctx context.Context, dir string, env []string, stdin io.Reader, limit int64, consume func(*bufio.Reader) error, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd := g.command(ctx, dir, env, args...)
	cmd.Stdin = stdin
	stderr := &head{limit: 4096}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: out, N: limit + 1}
	cerr := consume(bufio.NewReaderSize(limited, 64<<10))
	if limited.N == 0 {
		cerr = fmt.Errorf("wrote more than %d bytes", limit)
	}
	stopped := ctx.Err()
	if cerr != nil && !errors.Is(cerr, io.ErrUnexpectedEOF) {
		cancel() // nobody reads on; git that broke off ends by itself
	}
	err = cmd.Wait()
	what := "git " + subcommand(args)
	switch {
	case stopped != nil:
		return fmt.Errorf("%s: %w", what, stopped)
	case cerr != nil && !errors.Is(cerr, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: %w", what, cerr)
	case err != nil:
		return fmt.Errorf("%s: %w%s", what, err, stderr.line())
	case cerr != nil:
		return fmt.Errorf("%s: %w", what, cerr)
	}
	return nil
}

func subcommand(args []string) string {
	for len(args) > 2 && args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

// output runs git and returns what it wrote, at most 1 MiB.
func (g *git) output(ctx context.Context, dir string, env []string, stdin io.Reader, args ...string) ([]byte, error) {
	var buf bytes.Buffer
	err := g.stream(ctx, dir, env, stdin, func(r *bufio.Reader) error {
		n, err := io.Copy(&buf, io.LimitReader(r, 1<<20+1))
		if n > 1<<20 {
			return errors.New("wrote more than 1 MiB")
		}
		return err
	}, args...)
	return buf.Bytes(), err
}

// head keeps the beginning of what is written to it.
type head struct {
	limit int
	buf   bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	if room := h.limit - h.buf.Len(); room > 0 {
		h.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// line is the first line, fit to be appended to an error.
func (h *head) line() string {
	s, _, _ := strings.Cut(strings.TrimSpace(h.buf.String()), "\n")
	if s == "" {
		return ""
	}
	return ": " + printable(s)
}
