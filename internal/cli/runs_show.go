package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/runs"
)

func (a *app) runsShowCommand() *cobra.Command {
	asJSON, patch := false, false
	cmd := &cobra.Command{
		Use: "show RUN", Short: "Show one run: how it went, what was refused, what changed", Args: oneArgument("RUN"),
		Long: `Show one run of the history, or with latest the newest that has ended: how it
went, what was refused and by whom it was enforced, and every file that changed.

--patch prints the patch instead, and --json the record, as the run wrote them. On a
terminal, what of a patch the terminal would act on is written out.`,
		Example: "  checkfu runs show latest\n  checkfu runs show run_0123456789abcdef01234567 --patch | less",
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && patch {
				return argument.Wrong("--json: expected no --patch beside it, got both")
			}
			k, err := a.openRun(args[0])
			if err != nil {
				return err
			}
			defer k.Close()
			switch {
			case patch:
				return a.printPatch(k)
			case asJSON:
				data, err := k.Record()
				if err != nil {
					return errors.Join(lost(k), err)
				}
				_, err = a.stdout.Write(append(data, '\n'))
				return err
			}
			return a.describeRun(cmd.Context(), k)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the record")
	cmd.Flags().BoolVar(&patch, "patch", false, "print the patch")
	return cmd
}

// printPatch copies the patch as it is, for a program or a file. A terminal gets
// none of the bytes with which a stranger could move its cursor.
func (a *app) printPatch(k *runs.Kept) error {
	f, err := k.Patch()
	if errors.Is(err, os.ErrNotExist) {
		return noPatch(k)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	out, ok := a.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(out.Fd())) {
		_, err := io.Copy(a.stdout, f)
		return err
	}
	return copyPrintable(out, f)
}

// copyPrintable copies text for a terminal, line by line.
func copyPrintable(w io.Writer, from io.Reader) error {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadString('\n')
		text, ended := strings.CutSuffix(line, "\n")
		shown := argument.Printable(strings.ReplaceAll(text, "\t", "        "))
		if ended {
			shown += "\n"
		}
		if _, err := io.WriteString(w, shown); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// noPatch says why a Run has no patch here. Where nothing changed that is no error.
func noPatch(k *runs.Kept) error {
	if err := lost(k); err != nil || k.NotKept == "" {
		return err
	}
	where := ""
	switch k.PatchPath {
	case "": // there is none at all
	case "-":
		where = "; it went to standard output"
	default:
		where = "; it is in " + k.PatchPath
	}
	return fmt.Errorf("run %s: its patch is not in the history (%s)%s", k.RunID, k.NotKept, where)
}

func (a *app) describeRun(ctx context.Context, k *runs.Kept) error {
	w := a.stdout
	line := func(head, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", head, argument.Printable(fmt.Sprintf(format, args...)))
	}
	data, err := k.Record()
	var record runner.Record
	if err == nil {
		err = canonical.Decode(data, &record)
	}
	if k.FinishedAt == "" {
		fmt.Fprintf(w, "checkfu: %s on %s: lost, started %s\n", k.RunID, k.Provider, k.StartedAt)
	} else if err == nil {
		s := summary{record: &record, provider: k.Provider, out: k.OutDir, whole: true}
		if k.ExitCode != nil {
			s.code = int(*k.ExitCode)
		}
		s.patch = k.PatchPath
		s.print(w)
	} else {
		line("record", "cannot be read by this checkfu (--json prints it): %v", err)
	}
	line("command", "%s", commandLine(k.Command))
	line("started", "%s, ended %s", k.StartedAt, orNone(string(k.FinishedAt)))
	if r := k.Repo; r != nil {
		tree := r.Dir
		if r.Revision != "" {
			tree += "@" + r.Revision
		}
		if r.Commit != "" {
			tree += ", commit " + r.Commit
		}
		if r.Dirty {
			tree += " with changes"
		}
		line("tree", "%s, %s", tree, orNone(string(r.TreeDigest)))
	}
	if err := patchStat(ctx, k, line); err != nil {
		line("patch", "cannot be read: %v", err) // the rest is no less true
	}
	if k.NotKept != "" {
		line("not kept", "%s", k.NotKept)
	}
	if k.BaseBytes > 0 || k.PatchBytes > 0 {
		line("merge", "checkfu runs apply %s", k.RunID)
	}
	return nil
}

// patchStat says of each file of the patch how many lines it adds and deletes.
func patchStat(ctx context.Context, k *runs.Kept, line func(string, string, ...any)) error {
	f, err := k.Patch()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	stat, err := mount.PatchLines(ctx, f, "")
	if err != nil {
		return err
	}
	head := "patch of"
	for _, s := range stat {
		if s.Binary {
			line(head, "%-11s %s", "binary", s.Path)
		} else {
			line(head, "%-11s %s", fmt.Sprintf("+%d −%d", s.Added, s.Deleted), s.Path)
		}
		head = ""
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
