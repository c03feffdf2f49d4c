package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/sandbox"
)

// eachHost calls do with every provider whose machines lie on this host, in each area
// where it has any: what is served and tested is on the disk like what is a session's.
// One that fails does not keep the others.
func (a *app) eachHost(cmd *cobra.Command, do func(ctx context.Context, o *all.Opened) error) error {
	ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range all.Hosts() {
		for _, area := range all.Areas(dir, name) {
			o, err := all.Open(name, all.Options{Dir: dir, Area: area})
			if err == nil {
				err = errors.Join(do(ctx, o), o.Close())
			}
			if err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", strings.TrimSpace(name+" "+string(area)), err))
			}
		}
	}
	return errors.Join(failures...)
}

// machineLine is one line of "checkfu ps".
type machineLine struct {
	InstanceID string `json:"instance_id"`
	Provider   string `json:"provider"`
	RunID      string `json:"run_id"`
	SessionID  string `json:"session_id"`
	OwnerPID   int64  `json:"owner_pid"`
	Owned      bool   `json:"owned"`
	Waits      bool   `json:"waits,omitzero"` // it is nobody's yet
	RootImage  string `json:"root_image"`
	CreatedAt  string `json:"created_at"`
	ExpiresAt  string `json:"expires_at"`
}

type psDocument struct {
	Schema   string        `json:"schema"`
	Machines []machineLine `json:"machines"`
}

func (a *app) psCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "ps", Short: "List the machines on this host", Args: noArguments,
		Long:    "List the machines on this host, of any process. One whose owner is gone is an\norphan; checkfu sweep removes it. One that waits was started ahead of any run\n(checkfu provider serve --warm).",
		Example: "  checkfu ps\n  checkfu ps --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc := psDocument{Schema: "checkfu.ps.v1"}
			err := a.eachHost(cmd, func(ctx context.Context, o *all.Opened) error {
				list, err := o.Host.List(ctx)
				for _, m := range list {
					doc.Machines = append(doc.Machines, machineLine{
						InstanceID: string(m.InstanceID), Provider: o.Name, RunID: m.RunID, SessionID: m.SessionID,
						OwnerPID: m.OwnerPID, Owned: m.Owned, Waits: m.Waits, RootImage: m.RootImage,
						CreatedAt: string(m.CreatedAt), ExpiresAt: string(m.ExpiresAt),
					})
				}
				return err
			})
			if asJSON {
				return errors.Join(a.printJSON(doc), err)
			}
			if err != nil && len(doc.Machines) == 0 {
				return err
			}
			w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "INSTANCE\tPROVIDER\tOWNER\tRUN\tCREATED\tEXPIRES\tIMAGE")
			for _, m := range doc.Machines {
				owner := "gone"
				if m.Owned {
					owner = fmt.Sprintf("pid %d", m.OwnerPID)
				}
				run := argument.Printable(m.RunID)
				if m.Waits {
					run = "(waits)"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", argument.Printable(m.InstanceID), m.Provider, owner, run, m.CreatedAt, m.ExpiresAt, argument.Printable(m.RootImage))
			}
			return errors.Join(w.Flush(), err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	return cmd
}

type sweepDocument struct {
	Schema      string   `json:"schema"`
	InstanceIDs []string `json:"instance_ids"`
	RunIDs      []string `json:"run_ids"`      // whose staging was removed
	SessionIDs  []string `json:"session_ids"`  // whose keeper was gone
	SnapshotIDs []string `json:"snapshot_ids"` // that were past their expiry
}

// sweepHost removes what has no owner any more, and what is past its own expiry.
// Nobody here knows every snapshot that is still wanted, so age takes none.
func sweepHost(ctx context.Context, o *all.Opened) (sandbox.Swept, error) {
	return o.Host.Reclaim(ctx, sandbox.At(time.Now()))
}

// sweep removes what crashes left and what has expired, and names it.
func (a *app) sweep(cmd *cobra.Command) (sweepDocument, error) {
	doc := sweepDocument{Schema: "checkfu.sweep.v1"}
	dir, err := a.usableState()
	if err != nil {
		return doc, err
	}
	hostErr := a.eachHost(cmd, func(ctx context.Context, o *all.Opened) error {
		swept, err := sweepHost(ctx, o)
		for _, id := range swept.InstanceIDs {
			doc.InstanceIDs = append(doc.InstanceIDs, string(id))
		}
		for _, id := range swept.SnapshotIDs {
			doc.SnapshotIDs = append(doc.SnapshotIDs, string(id))
		}
		return err
	})
	runs, sweepErr := sweepScratch(dir)
	sessions, sessionErr := keeper.Sweep(cmd.Context(), dir, keeper.Ending{Reclaim: a.reclaim(dir), Kept: a.kept(dir)})
	doc.RunIDs, doc.SessionIDs = runs, sessions
	return doc, errors.Join(hostErr, sweepErr, sessionErr, sweepForks(cmd.Context(), dir))
}

func (a *app) sweepCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "sweep", Short: "Remove machines whose owner is gone", Args: noArguments,
		Long:    "Remove every machine that is past its own deadline, or whose owner is gone, and\nevery snapshot past its expiry. A machine that somebody still uses is never\ntouched, nor is a snapshot that has not expired, however old it is.",
		Example: "  checkfu sweep",
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := a.sweep(cmd)
			if isMistake(err) {
				return err
			}
			if asJSON {
				return errors.Join(a.printJSON(doc), err)
			}
			for _, id := range doc.InstanceIDs {
				fmt.Fprintf(a.stdout, "removed machine %s\n", argument.Printable(id))
			}
			for _, id := range doc.RunIDs {
				fmt.Fprintf(a.stdout, "removed staging of %s\n", argument.Printable(id))
			}
			for _, id := range doc.SessionIDs {
				fmt.Fprintf(a.stdout, "removed session %s\n", argument.Printable(id))
			}
			for _, id := range doc.SnapshotIDs {
				fmt.Fprintf(a.stdout, "removed snapshot %s, which had expired\n", argument.Printable(id))
			}
			if len(doc.InstanceIDs)+len(doc.RunIDs)+len(doc.SessionIDs)+len(doc.SnapshotIDs) == 0 && err == nil {
				fmt.Fprintln(a.stdout, "nothing to remove")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print canonical JSON")
	return cmd
}

func (a *app) envelopeCommand() *cobra.Command {
	provider := all.Native
	cmd := &cobra.Command{
		Use: "envelope", Short: "Print what a provider says of itself, as canonical JSON", Args: noArguments,
		Example: "  checkfu envelope --provider native:runc",
		RunE: func(*cobra.Command, []string) error {
			c, err := all.Envelope(provider)
			if err != nil {
				return argument.Wrong("--provider: %v", err)
			}
			return a.printJSON(c.WithDefaults())
		},
	}
	cmd.Flags().StringVar(&provider, "provider", all.Native, "native, native:runc or memory")
	return cmd
}

func (a *app) printJSON(v any) error {
	data, err := canonical.Encode(v)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(data, '\n'))
	return err
}
