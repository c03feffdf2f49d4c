package cli

import (
	"context"
	"fmt"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// checkLive refuses a live session of what cannot be one, before anything is made.
func checkLive(f sessionFlags, spec runner.Spec) error {
	switch {
	case !f.live:
		return nil
	case f.provider != all.NativeRunsc:
		return argument.Wrong("--live: expected --provider %s, whose runtime alone can keep processes, got %q", all.NativeRunsc, f.provider)
	case spec.Keep == 0:
		return argument.Wrong("--live: expected --keep beside it: processes are kept with the files")
	case f.model != "":
		return argument.Wrong("--live: expected no --model: a program that goes on would hold the token of a route that has ended")
	case spec.Network.Mode == sandbox.NetworkUnrestricted:
		return argument.Wrong("--live: expected no network, or --allow: an open network cannot be kept")
	}
	return nil
}

// detachedCommand is what runs in a session's machine for a command that is to go on by
// itself.
func detachedCommand(r keeper.Record, output string, command []string) ([]string, error) {
	if !r.Live {
		return nil, argument.Wrong("--detach: expected a session that was started with --live; in session %s nothing outlives its command", r.SessionID)
	}
	return guest.DetachCommand(machine.InitPath, output, command), nil
}

// pauseLive keeps a session with its processes.
func pauseLive(ctx context.Context, s *keeper.Session, until sandbox.Timestamp) error {
	if !s.Record.Live {
		return argument.Wrong("--live: session %s: expected one that was started with --live; the files of this one can be kept alone", s.Record.SessionID)
	}
	_, err := whileKept(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.PauseLive(ctx, until) })
	if keeper.NotLive.Is(err) {
		return fmt.Errorf("%w; without --live its files are kept alone", err)
	}
	return err
}

// releaseLiveOf keeps processes on a host whose machines have them.
func releaseLiveOf(host all.Host) keeper.LiveReleaser {
	if host == nil {
		return nil
	}
	return host.ReleaseLive
}

// live is whether a snapshot of a session has the processes of its machine.
func (s *store) live(id string, of sandbox.SnapshotID) bool {
	for _, k := range s.snapshots[id] {
		if k.Snapshot.SnapshotID == of {
			return k.Live
		}
	}
	return false
}
