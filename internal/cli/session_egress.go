package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// fromNow asks of a log where it ends.
const fromNow = -1

// guardOf gives what the guard of a session's machine decided from a point of its
// log on: the keeper's wire carries nothing of it, but the log lies on this host,
// closed to everyone else. close lets go of the provider. nil is a session without
// a guard.
func (a *app) guardOf(dir string, r keeper.Record) (ask func(ctx context.Context, since int64) (native.Decisions, error), done func(), err error) {
	if r.Instance == nil || r.Instance.Profile.NetworkPolicy.Mode != sandbox.NetworkAllowlist || r.Provider == all.Memory {
		return nil, func() {}, nil
	}
	o, err := all.Open(r.Provider, all.Options{Dir: dir})
	if err != nil {
		return nil, func() {}, err
	}
	ask = func(ctx context.Context, since int64) (native.Decisions, error) {
		return o.Host.Decisions(ctx, r.Instance.InstanceID, since)
	}
	return ask, func() { _ = o.Close() }, nil
}

// decidedMeanwhile is for a command in a session: what its guard decides from now on.
func (a *app) decidedMeanwhile(ctx context.Context, dir string, r keeper.Record) (func(context.Context, sandbox.InstanceID) (runner.Egress, error), func(), error) {
	ask, done, err := a.guardOf(dir, r)
	if ask == nil {
		return nil, done, err
	}
	before, err := ask(ctx, fromNow)
	if err != nil {
		return nil, done, err
	}
	return func(ctx context.Context, _ sandbox.InstanceID) (runner.Egress, error) {
		d, err := ask(ctx, before.Through)
		return egressOf(d), err
	}, done, nil
}

// sayRefused tells what a command in a session was refused, and nothing where
// nothing was: its streams are its own.
func sayRefused(w io.Writer, id string, e *runner.Egress) {
	if e == nil || len(e.Refused) == 0 && e.Others == 0 && !e.GuardEnded {
		return
	}
	sayEgress(w, "session "+id, e)
}

// sayEgress is the part of a summary that speaks of the guard.
func sayEgress(w io.Writer, of string, e *runner.Egress) {
	fmt.Fprintf(w, "checkfu: %s\n", of)
	summary{record: &runner.Record{Egress: e}}.egress(func(head, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", head, argument.Printable(fmt.Sprintf(format, args...)))
	})
}

// decidedInAll is what the guard of a session that is about to end decided, nil
// where it has none. It is no reason to keep a session that it cannot be read.
func (a *app) decidedInAll(ctx context.Context, dir, id string) (*sessionLine, error) {
	list, err := keeper.List(dir)
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		if l.SessionID != id || l.Damaged != nil {
			continue
		}
		line := lineOf(l)
		ask, done, err := a.guardOf(dir, l.Record)
		defer done()
		if ask == nil || err != nil {
			return &line, err
		}
		d, err := ask(ctx, 0)
		if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.InstanceNotFound { // its machine is gone
			return &line, nil
		}
		if err != nil {
			return &line, err
		}
		e := egressOf(d)
		line.Egress = &e
		return &line, nil
	}
	return &sessionLine{SessionID: id}, nil
}
