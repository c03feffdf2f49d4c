package keeper

import (
	"context"
	"errors"
	"slices"
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

// Whoever has the token of a session sweeps that session alone, whatever time they say
// it is: of one provider, neither another's machine nor its snapshot goes along.
func TestASweepIsOfItsSession(t *testing.T) {
	inner := memory.New(memory.Options{Clock: memory.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))})
	session := func(id string) *guard {
		in := Inputs{SessionID: id, LeaseID: "lease_" + id, ExpiresAt: "2030-01-01T01:00:00.000Z"}
		g := newGuard(inner, in, func(sandbox.Instance) error { return nil }, func(err error) { t.Error(err) })
		r := request(Record{SessionID: in.SessionID, LeaseID: in.LeaseID, ExpiresAt: in.ExpiresAt})
		r.Profile.RetentionMode = sandbox.RetentionDurable
		h, err := g.Provision(t.Context(), r)
		if err == nil {
			_, err = g.Activate(t.Context(), h.Value.InstanceID)
		}
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	mine, other := session("s"), session("other")
	const until = sandbox.Timestamp("2030-01-01T02:00:00.000Z")
	kept, err := other.Snapshot(t.Context(), other.instance().InstanceID, sandbox.SnapshotRequest{ExpiresAt: until})
	if err != nil {
		t.Fatal(err)
	}
	id := mine.instance().InstanceID
	for _, c := range []struct {
		now, cutoff sandbox.Timestamp
		takes       bool
		fails       bool
	}{
		{"2030-01-01T00:59:59.999Z", "2030-01-01T00:59:59.999Z", false, false},
		{"2030-01-01T01:00:00.000Z", "9999-01-01T00:00:00.000Z", false, true},
		{"9999-01-01T00:00:00.000Z", "9999-01-01T00:00:00.000Z", true, false},
		{"9999-01-01T00:00:00.000Z", "9999-01-01T00:00:00.000Z", false, false},
	} {
		swept, err := mine.Cleanup(t.Context(), sandbox.CleanupRequest{Now: c.now, OrphanedBefore: c.cutoff})
		var want []sandbox.InstanceID
		if c.takes {
			want = append(want, id)
		}
		if !slices.Equal(swept.InstanceIDs, want) || len(swept.SnapshotIDs) > 0 || c.fails != (err != nil) {
			t.Errorf("at %s: swept %+v, %v", c.now, swept, err)
		}
	}
	if _, err := other.Execute(t.Context(), other.instance().InstanceID, sandbox.Command{
		Executable: "true", WorkingDirectory: "/", Environment: map[string]string{}, TimeoutSeconds: 1, OutputLimitBytes: 1,
	}); err != nil {
		t.Errorf("the other session's machine: %v", err)
	}
	if err := errors.Join(kept.Rollback(t.Context()), other.end(t.Context())); err != nil {
		t.Error(err)
	}
	if left := inner.Census(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
