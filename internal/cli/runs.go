package cli

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/runs"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "runs", Short: "Look at what ran, and merge its changes",
		Long: `Every checkfu run leaves an entry in the history below the state directory: what
ran, on which tree, how it ended, its record, and its patch with what the changed
files were before. It can be looked at, and its changes merged into a tree that has
changed since.

The history is on this host alone and private to you. It holds arguments of
commands and no value of their environment. checkfu run --no-history leaves no
entry. At most 200 runs and 1 GiB are kept, and the oldest go first; checkfu runs
rm and checkfu prune remove more.`,
		Example: `  checkfu runs ls
  checkfu runs show latest
  checkfu runs apply latest --check`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return argument.Unexpected("runs", "ls, show, apply or rm", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.runsListCommand(), a.runsShowCommand(), a.runsApplyCommand(), a.runsRemoveCommand())
	return cmd
}

// runLine is one Run as the document of "runs ls" shows it.
type runLine struct {
	RunID      string     `json:"run_id"`
	State      string     `json:"state"`
	Provider   string     `json:"provider,omitzero"`
	Command    []string   `json:"argv,omitzero"`
	Repo       *runs.Repo `json:"repo,omitzero"`
	StartedAt  string     `json:"started_at"`
	FinishedAt string     `json:"finished_at,omitzero"`
	ExitCode   *int64     `json:"exit_code,omitzero"`
	Cause      string     `json:"cause,omitzero"`
	OutDir     string     `json:"out,omitzero"`
	PatchPath  string     `json:"patch_path,omitzero"`
	PatchBytes int64      `json:"patch_bytes"`
	NotKept    string     `json:"not_kept,omitzero"`
	DiskBytes  int64      `json:"disk_bytes"`
}

func runLineOf(l runs.Listed) runLine {
	return runLine{
		RunID: l.RunID, State: string(l.State), Provider: l.Provider, Command: l.Command, Repo: l.Repo,
		StartedAt: string(l.StartedAt), FinishedAt: string(l.FinishedAt), ExitCode: l.ExitCode, Cause: l.Cause,
		OutDir: l.OutDir, PatchPath: l.PatchPath, PatchBytes: l.PatchBytes, NotKept: l.NotKept, DiskBytes: l.Bytes,
	}
}

type runsDocument struct {
	Schema string    `json:"schema"`
	Runs   []runLine `json:"runs"`
}

func (a *app) runsListCommand() *cobra.Command {
	asJSON, quiet := false, false
	cmd := &cobra.Command{
		Use: "ls", Short: "List what ran, newest first", Args: noArguments,
		Long:    "List the runs of the history, newest first. A lost run is one whose process was\nkilled before it ended; it has no result. A damaged one cannot be read.",
		Example: "  checkfu runs ls\n  checkfu runs ls --json",
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.usableState()
			if err != nil {
				return err
			}
			list, err := runs.List(dir)
			if err != nil {
				return err
			}
			doc := runsDocument{Schema: "checkfu.runs.v1", Runs: []runLine{}}
			for _, l := range list {
				doc.Runs = append(doc.Runs, runLineOf(l))
			}
			switch {
			case asJSON:
				return a.printJSON(doc)
			case quiet:
				for _, r := range doc.Runs {
					if _, err := fmt.Fprintln(a.stdout, r.RunID); err != nil {
						return err
					}
				}
				return nil
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "RUN\tSTATE\tSTARTED\tEXIT\tPATCH\tCOMMAND")
			for _, r := range doc.Runs {
				code, patch := "-", "-"
				if r.ExitCode != nil {
					code = fmt.Sprint(*r.ExitCode)
				}
				if r.PatchBytes > 0 {
					patch = argument.Bytes(r.PatchBytes)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.RunID, r.State, r.StartedAt, code, patch, cut(commandLine(r.Command), 60))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids alone")
	return cmd
}

// cut keeps a column from becoming the page.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func (a *app) runsRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm RUN...", Short: "Remove runs from the history",
		Long:    "Remove runs from the history, with their records and patches. One that is under\nway, or is read at the moment, stays. Files that a run wrote elsewhere (--patch,\n--out, --json) are yours and stay.",
		Example: "  checkfu runs rm run_0123456789abcdef01234567",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return argument.Wrong("RUN: expected at least one (see checkfu runs ls)")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := a.usableState()
			if err != nil {
				return err
			}
			var failures []error
			for _, id := range args {
				err := runs.Remove(dir, id)
				if err == nil {
					_, err = fmt.Fprintln(a.stdout, id)
				} else {
					err = runError(id, err)
				}
				failures = append(failures, err)
			}
			return errors.Join(failures...)
		},
	}
}
