package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/controlplane/gateway"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/runner"
)

// modelInAll is asked before the machine of a session ends, and its answer is called afterwards:
// it ends the session's lease, where a keeper that was killed did not, and tells
// what was used in all; nil is no model route.
func (a *app) modelInAll(dir, id string) func(context.Context) (*runner.Model, error) {
	list, err := keeper.List(dir)
	for _, l := range list {
		// Of one that is paused it was told when its machine went.
		if l.SessionID != id || l.Damaged != nil || l.Model == "" || l.State == keeper.StatePaused {
			continue
		}
		return func(ctx context.Context) (*runner.Model, error) {
			m := &modelRoute{operator: gateway.Operator{Socket: l.Model}}
			m.end(ctx, gateway.Ending{LeaseID: l.LeaseID, LeaseEpoch: 1})
			used, err := m.counts()(ctx)
			if err != nil {
				return nil, err
			}
			return &used, nil
		}
	}
	return func(context.Context) (*runner.Model, error) { return nil, err }
}

// sayModel is the part of a summary that speaks of the model route.
func sayModel(w io.Writer, of string, m *runner.Model) {
	fmt.Fprintf(w, "checkfu: %s\n", of)
	summary{record: &runner.Record{Model: m}}.models(func(head, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", head, argument.Printable(fmt.Sprintf(format, args...)))
	})
}
