package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// sessionFlags are those of "session start" beside what it shares with "run".
type sessionFlags struct {
	runFlags
	id, expires  string
	asJSON, live bool
}

func (a *app) sessionStartCommand() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use: "start [DIR]", Short: "Make a machine that stays, with a copy of a repository",
		Long: `Make a machine that stays until it expires or is removed. DIR is a Git
repository, or DIR@REVISION, which is copied to /workspace/repo as checkfu run
does; without it the machine has none. The machine reaches nothing but what
--allow names, and with --model a model gateway (see checkfu run --help). Your
working tree is never touched; nothing is copied back by itself.

` + packagesHelp + `

With --keep what is in the machine outlives it: on the disk, paused, until somebody
resumes it (see checkfu session pause --help). The machine's files lie on this
host's disk then and not in memory. With --live too, a pause can keep processes.

Standard output holds the session's id. Whatever goes wrong, or ends this
command before it has ended by itself, leaves nothing behind.`,
		Example: `  checkfu session start
  checkfu session start . --expires 8h --memory 4GiB
  checkfu session start . --package apt:jq
  checkfu session start . --keep
  checkfu session start . --keep=720h
  checkfu session start . --keep --live
  id=$(checkfu session start .@v1.2.0 --provider native:runc --quiet)`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return argument.Unexpected("DIR", "at most one", args[1])
			}
			if len(args) == 1 && args[0] == "" {
				return argument.Unexpected("DIR", "a Git repository", "")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.repo = args[0]
			}
			return asStarted(a.sessionStart(cmd.Context(), f))
		},
	}
	flags := cmd.Flags()
	f.machineFlags(flags)
	flags.StringVar(&f.expires, "expires", "1h", "how long the machine lasts at most; the session ends with it, or is paused with --keep")
	flags.BoolVar(&f.live, "live", false, "with --keep: what is detached in it (session exec --detach) can be kept too (session pause --live)")
	flags.StringVar(&f.id, "id", "", "id of the session, 1 to 40 letters, digits, - or _ (default a new one)")
	flags.BoolVar(&f.asJSON, "json", false, "print the session as canonical JSON instead of its id")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print the id alone")
	return cmd
}

// asStarted gives a mistake the names that it was typed under here, where run
// has others.
func asStarted(err error) error {
	mistake, ok := errors.AsType[*argument.Error](err)
	if !ok {
		return err
	}
	text := strings.Replace(mistake.Error(), "expected --repo beside it", "expected DIR beside it", 1)
	for run, start := range map[string]string{"--repo: ": "DIR: ", "--timeout: ": "--expires: "} {
		if rest, found := strings.CutPrefix(text, run); found {
			text = start + rest
		}
	}
	return argument.Wrong("%s", text)
}

func (a *app) sessionStart(ctx context.Context, f sessionFlags) error {
	if f.id == "" {
		f.id = keeper.NewID()
	} else if keeper.CheckID(f.id) != nil {
		return argument.Unexpected("--id", "1 to 40 letters, digits, - or _, the first a letter or digit", f.id)
	}
	lasts, err := argument.Duration("--expires", f.expires)
	if err != nil {
		return err
	}
	spec, err := f.machine()
	if err != nil {
		return err
	}
	spec.Timeout = lasts
	if f.provider, err = all.Canonical(f.provider); err != nil {
		return argument.Wrong("--provider: %v", err)
	}
	dir, err := a.usableState()
	if err != nil {
		return err
	}
	bar := a.progress(f.quiet)
	defer bar.end()
	spec.Progress = bar.phase
	ctx, stop := interruptible(ctx, bar.note)
	defer stop()
	models, err := a.route(ctx, f.model, nil)
	if err != nil {
		return err
	}
	if err := checkLive(f, spec); err != nil {
		return err
	}
	if err := f.canKeep(spec); err != nil {
		return err
	}
	settings, from, err := registries(f.registries)
	if err != nil {
		return err
	}
	opened, closeProvider, err := a.open(ctx, f.provider, f.image, bar, all.Options{Model: models.leases(), Registries: from, Building: bar.building})
	if err != nil {
		return err
	}
	spec.Image = opened.Image
	err = a.materialize(ctx, opened, spec.Image, spec.Packages)
	closeProvider() // the keeper opens its own
	if err != nil {
		return err
	}
	if err := a.letOut(spec.Network, opened.Host); err != nil {
		return err
	}
	remove, err := a.stage(&spec)
	if err != nil {
		return err
	}
	defer remove()
	record, made, err := a.makeSession(ctx, keeper.Options{
		Dir: dir, SessionID: f.id, Provider: f.provider, ExpiresAt: sandbox.At(time.Now().Add(lasts)), Model: models.control(), Registries: settings, Keep: spec.Keep, Live: f.live,
	}, opened.Envelope.Target(), spec)
	if err != nil {
		return err
	}
	bar.end()
	if !f.quiet {
		a.sayStarted(record, made, lasts)
	}
	line := []sessionLine{lineOf(keeper.Listed{Record: record})}
	if f.asJSON {
		err = a.printJSON(sessionsDocument{sessionsSchema, line})
	} else {
		err = a.printIDs(line)
	}
	if err == nil {
		return nil
	}
	// Nobody knows of it, so nobody would end it.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonBound)
	defer cancel()
	return errors.Join(err, keeper.End(ending, dir, record.SessionID, keeper.Ending{Reclaim: a.reclaim(dir)}))
}

// abandonBound is how long a keeper has to end a session that is not to be.
const abandonBound = 90 * time.Second

// makeSession starts a keeper, and makes the machine through it.
func (a *app) makeSession(ctx context.Context, o keeper.Options, target sandbox.Target, spec runner.Spec) (keeper.Record, *runner.Record, error) {
	s, err := keeper.Start(ctx, o)
	if keeper.Exists.Is(err) {
		return keeper.Record{}, nil, argument.Unexpected("--id", "an id that no session has yet (see checkfu session ls)", o.SessionID)
	}
	if err != nil {
		return keeper.Record{}, nil, err
	}
	r := a.sessionRunner(s.Session, target)
	made, err := whileKept(ctx, s.Session, func(ctx context.Context) (*runner.Record, error) {
		made, _, err := r.Prepare(ctx, spec, runner.Holder{SessionID: s.Record.SessionID, LeaseID: s.Record.LeaseID, ExpiresAt: s.Record.ExpiresAt})
		return made, err
	})
	if keeper.Dead.Is(err) {
		return keeper.Record{}, nil, fmt.Errorf("%w; checkfu sweep removes what is left", err)
	}
	if err != nil {
		err = explain(err, made)
	}
	record, err := a.begun(ctx, s, err)
	return record, made, err
}

// begun keeps a session whose machine was made, where err is nil, and else leaves
// nothing of what was begun.
func (a *app) begun(ctx context.Context, s *keeper.Starting, err error) (keeper.Record, error) {
	if err == nil {
		err = s.Keep(ctx)
	}
	if err == nil && ctx.Err() == nil {
		return s.Record, s.Close()
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonBound)
	defer cancel()
	why := s.Abandon(ending)
	if _, mistake := errors.AsType[*argument.Error](err); mistake {
		return keeper.Record{}, err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if why == nil && s.Record.Snapshot != nil {
			err = fmt.Errorf("%w; the session is paused as before", err)
		} else if why == nil {
			err = fmt.Errorf("%w; nothing is left of the session", err)
		}
	}
	return keeper.Record{}, errors.Join(err, why)
}

// sessionRunner runs in a session's machine. Its provider is behind a wire, so
// nothing of it counts as enforced by this program itself.
func (a *app) sessionRunner(s *keeper.Session, target sandbox.Target) *runner.Runner {
	return &runner.Runner{
		Adapters: []sandboxruntime.Adapter{{Provider: s.Client, Remote: s.Client.Remote()}}, Target: target,
		Platform: sandbox.Platform{OS: "linux", Architecture: runtime.GOARCH}, Versions: versions(), Report: a.complain,
	}
}

func (a *app) sayStarted(r keeper.Record, made *runner.Record, lasts time.Duration) {
	fmt.Fprintf(a.stderr, "checkfu: session %s on %s until %s (%v)\n", r.SessionID, r.Provider, r.ExpiresAt, lasts)
	for _, m := range made.Mounts {
		fmt.Fprintf(a.stderr, "  %-9s %s\n", "staged", argument.Printable(m.MountPath+": "+m.Summary))
	}
	fmt.Fprintf(a.stderr, "  %-9s %s\n", "enforced", enforcement(made.Enforcement))
}
