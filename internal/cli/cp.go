package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

func (a *app) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cp SESSION:PATH DEST | cp SRC SESSION:PATH", Short: "Copy files out of or into the machine of a session",
		Long: `Copy a file, or a directory with all below it, out of the machine of a session; or a
file into it. A relative PATH begins where commands begin (/workspace/repo where
there is a repository, else the home). Where DEST, or PATH with a slash at its end,
is a directory, the copy keeps its name in it. - is standard output, or input. A
local name with a colon is written ./a:b.

Out of the mounts and /mnt/session/outputs is read from outside, checked against the
listing and written by descriptor: a link that lies in your directory is not
followed. Links, special files, and names that git would take for its own, here or
there, are named and not copied. So is a file that changes just then; the rest is
copied, and the exit is 125. A file above 16 MiB is passed on by cat in the machine, and
held to the listing's size and digest. Into them at most 16 MiB are written
from outside, whole or not at all, while the machine stands still for a moment.

Any other single file is passed on by cat, or written by sh, in the machine: as a
command of the session it takes its turn with the others, and what it says is the
machine's word. Out of it come at most as many bytes as the machine's disk may have.`,
		Example: `  checkfu cp $id:report.html .
  checkfu cp $id:/mnt/session/outputs results
  checkfu cp notes.txt $id:/mnt/session/outputs/
  checkfu cp $id:build.log - | tail`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == "" || args[1] == "" {
				return argument.Wrong("cp: expected a source and a destination, as in: checkfu cp ID:PATH DIR")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.cp(cmd.Context(), args[0], args[1]) },
	}
}

// remotePath takes apart SESSION:PATH; what is no session's is a local name.
func remotePath(s string) (id, at string, ok bool) {
	id, at, ok = strings.Cut(s, ":")
	return id, at, ok && keeper.CheckID(id) == nil
}

func (a *app) cp(ctx context.Context, from, to string) error {
	ctx, stop := interruptible(ctx, a.progress(false).note)
	defer stop()
	fromID, fromPath, out := remotePath(from)
	toID, toPath, in := remotePath(to)
	switch {
	case out == in:
		return argument.Wrong("cp: expected one of the two as SESSION:PATH, got %q and %q", from, to)
	case out && fromPath == "" || in && toPath == "":
		return argument.Wrong("cp: expected a path behind the session, as in: %s:/mnt/session/outputs", fromID+toID)
	}
	id := fromID
	if in {
		id = toID
	}
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	s, err := keeper.Open(ctx, dir, id)
	if err != nil {
		return sessionError(id, err)
	}
	defer s.Close()
	c := &copying{app: a, session: s, in: *s.Record.Instance, dir: dir, id: id}
	do := func(ctx context.Context) (struct{}, error) {
		if out {
			return struct{}{}, c.outOf(ctx, fromPath, to)
		}
		return struct{}{}, c.into(ctx, from, toPath)
	}
	if _, err = whileKept(ctx, s, do); keeper.Dead.Is(err) {
		return fmt.Errorf("session %s has ended meanwhile", id)
	}
	return err
}

// copying is one copy out of or into the machine of a session.
type copying struct {
	*app
	session *keeper.Session
	in      sandbox.Instance
	dir, id string
}

// place is a path in the machine, absolute and in its one spelling.
func (c *copying) place(p string) (string, error) {
	if !path.IsAbs(p) {
		p = path.Join(workingDirectory(&c.in), p)
	}
	if p = path.Clean(p); sandbox.CheckPath("path", p) != nil || p == "/" {
		return "", argument.Unexpected("PATH", "a path in the machine", p)
	}
	return p, nil
}

func (c *copying) outOf(ctx context.Context, from, to string) error {
	at, err := c.place(from)
	if err != nil {
		return err
	}
	dest := runner.Destination{Dir: to, Name: path.Base(at), Large: c.cat}
	switch {
	case to == "-":
		dest = runner.Destination{Writer: c.stdout, Large: c.cat}
	case !argument.IsDir(to):
		if strings.HasSuffix(to, "/") || !argument.IsDir(filepath.Dir(to)) {
			return argument.Unexpected("DEST", "a directory, or a name in one that exists", to)
		}
		dest.Dir, dest.Name = filepath.Dir(to), filepath.Base(to)
	}
	outputs, err := c.sessionRunner(c.session, c.in.Target).Fetch(ctx, c.in, at, dest)
	switch {
	case errors.Is(err, runner.ErrOutside):
		return c.passOn(ctx, at, dest)
	case errors.Is(err, runner.ErrNoLeaf):
		return argument.Unexpected("PATH", "a file in the machine, or a directory with files in it", at)
	}
	copied, missed := 0, 0
	for _, o := range outputs {
		if o.Refused == "" {
			copied++
		} else {
			if o.Missed() {
				missed++
			}
			c.complain(fmt.Errorf("%s is not copied: %s", argument.Printable(o.Path), strings.ReplaceAll(o.Refused, "_", " ")))
		}
	}
	switch {
	case err != nil:
		return err
	case copied == 0 && len(outputs) > 0:
		return errors.New("nothing was copied")
	case missed > 0: // a script must not take a part for the whole
		return fmt.Errorf("%d of %d files are not copied", missed, copied+missed)
	}
	return nil
}

// passOn has cat in the machine write a file that no Runner reads from outside. A cat
// of the machine's own can write for ever.
func (c *copying) passOn(ctx context.Context, at string, dest runner.Destination) error {
	if dest.Writer != nil {
		return c.cat(ctx, at, dest.Writer)
	}
	s := &sink{path: filepath.Join(dest.Dir, dest.Name)}
	defer s.discard()
	if err := s.open(); err != nil {
		return err
	}
	if err := c.cat(ctx, at, s); err != nil {
		return err
	}
	return s.commit()
}

func (c *copying) cat(ctx context.Context, at string, to io.Writer) error {
	most := c.in.Profile.ResourceLimits.DiskBytes
	b := &bounded{to: to, left: most}
	err := c.inside(ctx, nil, b, "cat", at)
	// How the command then ended does not matter.
	switch failed := b.why(); {
	case errors.Is(failed, errBeyond):
		return fmt.Errorf("%s is more than the %s that the machine's disk may have", argument.Printable(at), argument.Bytes(most))
	case failed != nil:
		return failed
	}
	return err
}

// bounded passes on what is written to it, and fails where that is too much. Who writes
// can be under way still when why is asked.
type bounded struct {
	to     io.Writer
	left   int64
	failed atomic.Pointer[error]
}

// why says how the last Write failed; nil where it did not.
func (b *bounded) why() error {
	if err := b.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (b *bounded) Write(p []byte) (n int, err error) {
	if err = errBeyond; int64(len(p)) <= b.left {
		n, err = b.to.Write(p)
		b.left -= int64(n)
	}
	if err != nil {
		b.failed.Store(&err)
	}
	return n, err
}

var errBeyond = errors.New("too many bytes")

// written is a shell's way to write its input to a file whole or not at all: $2 is
// how many bytes there are to be, or nothing. mv would move into a directory.
const written = `if [ -d "$1" ]; then echo "$1 is a directory: with a slash at its end the file keeps its name in it" >&2; exit 1; fi
t=$1.checkfu-cp; trap 'rm -f -- "$t"' EXIT
cat >"$t" && { [ -z "$2" ] || [ "$(wc -c <"$t")" -eq "$2" ]; } && { [ -z "$3" ] || chmod +x -- "$t"; } && [ ! -d "$1" ] && mv -f -- "$t" "$1"`

func (c *copying) into(ctx context.Context, from, to string) error {
	source, size, executable, err := c.source(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if strings.HasSuffix(to, "/") {
		if from == "-" {
			return argument.Unexpected("PATH", "the name of a file, for standard input has none", to)
		}
		to += filepath.Base(from)
	}
	at, err := c.place(to)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(source, sandbox.MaxFileBytes+1))
	if err != nil {
		return err
	}
	if len(content) <= sandbox.MaxFileBytes {
		w := sandbox.FileWrite{Path: at, Content: content, Executable: executable}
		if err := c.sessionRunner(c.session, c.in.Target).Put(ctx, c.in, w); !errors.Is(err, runner.ErrOutside) {
			return err
		}
	} else if sandbox.Within(at, sandbox.OutputPath) {
		return argument.Unexpected("SRC", "at most 16 MiB for "+sandbox.OutputPath, from)
	}
	x := ""
	if executable {
		x = "x"
	}
	return c.inside(ctx, io.MultiReader(bytes.NewReader(content), source), io.Discard, "sh", "-c", written, "sh", at, size, x)
}

// source opens a local file; size is its length in digits, "" for one that has none.
func (c *copying) source(from string) (source io.ReadCloser, size string, executable bool, err error) {
	if from == "-" {
		if c.stdin == nil {
			return io.NopCloser(bytes.NewReader(nil)), "", false, nil
		}
		return io.NopCloser(c.stdin), "", false, nil
	}
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		return nil, "", false, argument.Unexpected("SRC", "a file (a directory goes in with: tar c DIR | checkfu session exec ID -- tar x)", from)
	}
	if err != nil || !info.Mode().IsRegular() {
		return nil, "", false, argument.Unexpected("SRC", "a file", from)
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, "", false, err
	}
	return f, strconv.FormatInt(info.Size(), 10), info.Mode()&0o111 != 0, nil
}

// inside runs a command of ours in the machine; it fails where that does.
func (c *copying) inside(ctx context.Context, input io.Reader, output io.Writer, command ...string) error {
	var said bytes.Buffer
	spec := runner.Spec{
		Image: c.in.RootImage, Network: c.in.Profile.NetworkPolicy, Resources: c.in.Profile.ResourceLimits,
		Timeout: time.Hour, Command: command, WorkingDirectory: "/", Environment: map[string]string{},
		Input: input, Output: output, Errors: &head{b: &said, left: 4096},
	}
	record, err := c.sessionRunner(c.session, c.in.Target).Execute(ctx, spec, c.in)
	switch {
	case err != nil:
		return execError(c.dir, c.id, err)
	case record.Cause == runner.CauseNotFound || record.Cause == runner.CauseNotStarted:
		return fmt.Errorf("the machine has no %s to copy with", command[0])
	case record.Cause != runner.CauseExited || record.Exit.ExitCode == nil || *record.Exit.ExitCode != 0:
		return fmt.Errorf("the machine could not copy it: %s", argument.OneLine(orNone(said.String())))
	}
	return nil
}

// head keeps the beginning of what is written to it.
type head struct {
	b    *bytes.Buffer
	left int
}

func (h *head) Write(p []byte) (int, error) {
	n := min(h.left, len(p))
	h.b.Write(p[:n])
	h.left -= n
	return len(p), nil
}
