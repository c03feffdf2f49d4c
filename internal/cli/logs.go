package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/runs"
	"github.com/checkfu/checkfu/sandbox"
)

func (a *app) logsCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "logs SESSION|RUN", Short: "Show what a session or a run did, as far as it is recorded", Args: oneArgument("SESSION or RUN"),
		Long: `Show what a session or a run did: its commands with their times and exits, what its
guard refused, and what its keeper noted. What commands printed is kept nowhere.

A session that keeps what is in its machine (--keep) keeps a log of its commands
beside its record, of at most 256 KiB, private to you: arguments, times, exits and
sizes. Any other session keeps no log, as its machine keeps nothing. That of a run is
its record (checkfu runs show prints more of it).`,
		Example: "  checkfu logs $id\n  checkfu logs latest",
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "latest" || runs.CheckID(args[0]) == nil {
				k, err := a.openRun(args[0])
				if err == nil {
					defer k.Close()
					return a.runLogs(k, asJSON)
				}
				if !isMistake(err) || args[0] == "latest" {
					return err
				}
			}
			return a.sessionLogs(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	return cmd
}

func isMistake(err error) bool {
	_, ok := errors.AsType[*argument.Error](err)
	return ok
}

type logsDocument struct {
	Schema    string         `json:"schema"`
	SessionID string         `json:"session_id,omitzero"`
	RunID     string         `json:"run_id,omitzero"`
	State     string         `json:"state"`
	Kept      bool           `json:"kept"` // whether a log of commands is kept at all
	Commands  []keeper.Ran   `json:"commands"`
	Egress    *runner.Egress `json:"egress,omitzero"`
	Notes     []string       `json:"notes"` // of the keeper; failures of a run
}

const logsSchema = "checkfu.logs.v1"

func (a *app) sessionLogs(ctx context.Context, id string, asJSON bool) error {
	ctx, stop := interruptible(ctx, a.progress(false).note)
	defer stop()
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	l, err := keeper.Find(dir, id)
	if err != nil {
		return sessionError(id, err)
	}
	commands, err := keeper.Commands(dir, id)
	if err != nil {
		return err
	}
	journal, err := keeper.Journal(dir, id)
	if err != nil {
		return err
	}
	doc := logsDocument{Schema: logsSchema, SessionID: id, State: string(l.State), Kept: l.Keeps(), Commands: commands}
	for line := range strings.Lines(journal) {
		doc.Notes = append(doc.Notes, strings.ToValidUTF8(strings.TrimRight(line, "\n"), "\uFFFD"))
	}
	line, err := a.decidedInAll(ctx, dir, id)
	if err != nil {
		a.complain(fmt.Errorf("what its guard decided cannot be told: %w", err))
	} else if line != nil {
		doc.Egress = line.Egress
	}
	return a.sayLogs(doc, "session "+id, asJSON)
}

func (a *app) runLogs(k *runs.Kept, asJSON bool) error {
	ran := keeper.Ran{ID: k.RunID, Command: k.Command, StartedAt: k.StartedAt, EndedAt: k.FinishedAt, Cause: k.Cause}
	doc := logsDocument{Schema: logsSchema, RunID: k.RunID, State: string(runs.Ended), Kept: true}
	if k.FinishedAt == "" {
		doc.State = string(runs.Lost)
	} else {
		var record runner.Record
		data, err := k.Record()
		if err == nil {
			err = canonical.Decode(data, &record)
		}
		if err != nil {
			return fmt.Errorf("run %s: its record cannot be read by this checkfu (checkfu runs show %s --json prints it): %w", k.RunID, k.RunID, err)
		}
		ran.Exit, doc.Egress = record.Exit, record.Egress
		for _, f := range record.Failures {
			doc.Notes = append(doc.Notes, string(f.Phase)+": "+f.Message)
		}
	}
	doc.Commands = []keeper.Ran{ran}
	return a.sayLogs(doc, k.RunID, asJSON)
}

func (a *app) sayLogs(doc logsDocument, of string, asJSON bool) error {
	if asJSON {
		return a.printJSON(doc)
	}
	if !doc.Kept {
		fmt.Fprintf(a.stderr, "checkfu: %s keeps no log of its commands, as it keeps nothing of its machine (see checkfu session start --keep)\n", of)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	if len(doc.Commands) > 0 {
		fmt.Fprintln(w, "STARTED\tTOOK\tEXIT\tREFUSED\tOUTPUT\tCOMMAND")
	}
	for _, c := range doc.Commands {
		output := "-"
		if c.OutputBytes > 0 {
			output = argument.Bytes(c.OutputBytes)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", c.StartedAt, took(c), exitWord(c), c.Refused, output, commandLine(c.Command))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if doc.Egress != nil {
		sayEgress(a.stdout, of, doc.Egress)
	}
	for _, n := range doc.Notes {
		if _, err := fmt.Fprintf(a.stdout, "  %-9s %s\n", "noted", argument.OneLine(n)); err != nil {
			return err
		}
	}
	return nil
}

func took(c keeper.Ran) string {
	began, err := c.StartedAt.Time()
	ended, err2 := c.EndedAt.Time()
	if err != nil || err2 != nil {
		return "-"
	}
	return ended.Sub(began).Round(10 * time.Millisecond).String()
}

// exitWord is how a command ended, in a column.
func exitWord(c keeper.Ran) string {
	switch {
	case c.EndedAt == "":
		return "?" // it runs, or whoever ran it was killed
	case c.Cause != string(runner.CauseExited):
		return orNone(strings.ReplaceAll(c.Cause, "_", " "))
	case c.Exit.Signal != "":
		return c.Exit.Signal
	case c.Exit.ExitCode != nil:
		return fmt.Sprint(*c.Exit.ExitCode)
	}
	return "-"
}

// noting writes a command of a session into its log, now and when done is called
// with what became of it. A log that cannot be written is told, and keeps nobody.
func (a *app) noting(dir string, r keeper.Record, spec *runner.Spec, command []string) (done func(*runner.Record)) {
	if len(command) == 0 {
		command = []string{"(shell)"} // the one of the machine's choice
	}
	c := keeper.Ran{ID: keeper.NewCommandID(), Command: command, StartedAt: sandbox.At(time.Now())}
	note := func() {
		if err := keeper.Note(dir, r, c); err != nil {
			a.complain(fmt.Errorf("session %s: its log of commands: %w", r.SessionID, err))
		}
	}
	note()
	var size atomic.Int64
	if spec.Output != nil { // a terminal's is set by whom it belongs to
		spec.Output, spec.Errors = counting{spec.Output, &size}, counting{spec.Errors, &size}
	}
	return func(record *runner.Record) {
		c.EndedAt, c.OutputBytes = sandbox.At(time.Now()), size.Load()
		if record != nil {
			c.Cause, c.Exit = string(record.Cause), record.Exit
			if e := record.Egress; e != nil {
				c.Refused = e.Others
				for _, r := range e.Refused {
					c.Refused += r.Count
				}
			}
		}
		note()
	}
}

// counting counts what is written through it.
type counting struct {
	to   io.Writer
	size *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.size.Add(int64(n))
	return n, err
}
