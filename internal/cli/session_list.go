package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/sandbox"
)

func (a *app) sessionListCommand() *cobra.Command {
	asJSON, quiet := false, false
	cmd := &cobra.Command{
		Use: "ls", Short: "List the sessions on this host", Args: noArguments,
		Long: `List the sessions of this state directory, and when their machine ends, or what is
kept of them.

  starting  its machine is being made
  active    it has a machine
  paused    its files lie on the disk, and nothing of it runs
  lost      its keeper is gone, and its machine with it. Where something of it was
            kept, checkfu session resume goes back to that; rm removes what is left
  damaged   its keeper lives, but its record cannot be read, mostly since another
            version of checkfu wrote it: use, and remove, it with that one

DISK is what its files and what is kept of it take, blocks that are shared counted
for each.`,
		Example: "  checkfu session ls\n  checkfu session ls --quiet | xargs checkfu session rm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := a.usableState()
			if err != nil {
				return err
			}
			list, err := keeper.List(dir)
			if err != nil {
				return err
			}
			doc := sessionsDocument{Schema: sessionsSchema}
			if quiet && !asJSON {
				for _, l := range list {
					doc.Sessions = append(doc.Sessions, lineOf(l))
				}
				return a.printIDs(doc.Sessions)
			}
			var unseen error
			doc.Sessions, unseen = sessionLines(cmd.Context(), dir, list)
			if asJSON {
				return errors.Join(a.printJSON(doc), unseen)
			}
			return errors.Join(a.printSessions(doc.Sessions), unseen)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the ids alone")
	return cmd
}

// sessionLines says of each session what its record and the snapshots that there
// are say together. A provider whose snapshots cannot be looked at is an error
// beside what is known without.
func sessionLines(ctx context.Context, dir string, list []keeper.Listed) ([]sessionLine, error) {
	stores := map[string]*store{}
	var failures []error
	defer func() {
		for _, s := range stores {
			if s != nil {
				_ = s.close()
			}
		}
	}()
	var lines []sessionLine
	for _, l := range list {
		line := lineOf(l)
		if l.Damaged == nil && l.Keeps() {
			s, opened := stores[l.Provider]
			if !opened {
				var err error
				if s, err = openSnapshots(ctx, dir, l.Provider); err != nil {
					failures = append(failures, fmt.Errorf("%s: what is kept cannot be told: %w", l.Provider, err))
				}
				stores[l.Provider] = s
			}
			if s != nil {
				s.tell(l, &line)
			}
		}
		lines = append(lines, line)
	}
	return lines, errors.Join(failures...)
}

// tell completes a line by what there is of a session that keeps what is in it.
func (s *store) tell(l keeper.Listed, line *sessionLine) {
	line.DiskBytes = s.bytes(l.SessionID)
	if l.Instance != nil && l.Keeping() && s.opened.Host != nil {
		line.DiskBytes += s.opened.Host.HomeBytes(l.Instance.InstanceID)
	}
	if l.State == keeper.StatePaused && !s.has(l.SessionID, l.Snapshot.SnapshotID) {
		line.State = string(keeper.StateLost) // it has expired, or was destroyed
	}
	if line.State != string(keeper.StateLost) {
		line.Live = l.State == keeper.StatePaused && s.live(l.SessionID, l.Snapshot.SnapshotID)
		return
	}
	line.SnapshotID = ""
	if last := s.newest(l.SessionID); last != nil {
		line.SnapshotID, line.ExpiresAt = string(last.SnapshotID), string(last.ExpiresAt)
	}
}

func (a *app) printSessions(lines []sessionLine) error {
	now := time.Now()
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tSTATE\tPROVIDER\tKEEPER\tAGE\tEXPIRES\tDISK\tIMAGE")
	for _, s := range lines {
		process, disk := "-", "-"
		if s.KeeperPID != 0 {
			process = fmt.Sprintf("pid %d", s.KeeperPID)
		}
		if s.KeepMillis > 0 {
			disk = argument.Bytes(s.DiskBytes)
		}
		state := s.State
		if s.Live {
			state += ", live"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.SessionID, state, s.Provider, process,
			since(now, s.CreatedAt), until(now, s.ExpiresAt), disk, argument.Printable(s.RootImage))
	}
	return w.Flush()
}

// since is how long ago a time was, for people.
func since(now time.Time, at string) string {
	t, err := sandbox.Timestamp(at).Time()
	if err != nil {
		return "-"
	}
	return span(now.Sub(t))
}

// until is how far away a time is, for people.
func until(now time.Time, at string) string {
	t, err := sandbox.Timestamp(at).Time()
	switch {
	case err != nil:
		return "-"
	case !now.Before(t):
		return "past"
	}
	return "in " + span(t.Sub(now))
}

// span is a time in its two largest units.
func span(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	units := []struct {
		each time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if n := d / u.each; n > 0 || u.each == time.Second {
			text := strconv.Itoa(int(n)) + u.name
			if rest := d % u.each; i+1 < len(units) && rest >= units[i+1].each {
				text += strconv.Itoa(int(rest/units[i+1].each)) + units[i+1].name
			}
			return text
		}
	}
	return ""
}
