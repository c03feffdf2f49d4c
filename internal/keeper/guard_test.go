package keeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
)

// slow is a provider whose machine is made while something else happens.
type slow struct {
	sandbox.Provider
	meanwhile func()
	rollback  error // where it is not nil, the rollback fails
}

func (p *slow) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	h, err := p.Provider.Provision(ctx, r)
	p.meanwhile()
	if p.rollback != nil {
		h.Rollback = func(context.Context) error { return p.rollback }
	}
	return h, err
}

// The session ends while its machine is being made: it is not forgotten, also
// where it cannot be rolled back.
func TestAMachineThatIsLateIsDestroyed(t *testing.T) {
	for name, broken := range map[string]error{"rolled back": nil, "not rolled back": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			inner := memory.New(memory.Options{Clock: memory.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))})
			p := &slow{Provider: inner, rollback: broken}
			in := Inputs{SessionID: "s", LeaseID: "lease", ExpiresAt: "2030-01-01T01:00:00.000Z"}
			var logged error
			g := newGuard(p, in, func(sandbox.Instance) error { return nil }, func(err error) { logged = err })
			p.meanwhile = func() {
				if err := g.end(t.Context()); err != nil {
					t.Error(err)
				}
			}
			r := request(Record{SessionID: in.SessionID, LeaseID: in.LeaseID, ExpiresAt: in.ExpiresAt})
			if _, err := g.Provision(t.Context(), r); !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}) {
				t.Error(err)
			}
			if known := g.instance() != nil; known != (broken != nil) || !errors.Is(logged, broken) {
				t.Errorf("known %v, logged %v", known, logged)
			}
			if err := g.end(t.Context()); err != nil {
				t.Error(err)
			}
			if left := inner.Census(); len(left) > 0 || g.instance() != nil {
				t.Errorf("left: %q, %v", left, g.instance())
			}
			select {
			case <-g.gone:
			default:
				t.Error("nobody is told that it is gone")
			}
		})
	}
}
