package keeper

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// sticky is a provider that keeps a machine and cannot remove it, so many times; one
// that is kept has its expiry.
type sticky struct {
	sandbox.Provider

	mu    sync.Mutex
	fails int
	until sandbox.Timestamp
}

func (p *sticky) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == "" {
		p.until = r.ExpiresAt
	}
	if p.until != r.ExpiresAt {
		return sandbox.Handoff[sandbox.Released]{}, sandbox.Conflict(sandbox.OpRelease, "expires_at "+string(p.until), string(r.ExpiresAt))
	}
	if p.fails > 0 {
		p.fails--
		return sandbox.Handoff[sandbox.Released]{}, notRemoved
	}
	return p.Provider.Release(ctx, id, r)
}

// A pause whose removal failed is repeated, by who asks for it and by the keeper
// itself, at whatever time: what was taken has its expiry from the first.
func TestAPauseThatCouldNotRemoveIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		asked bool // by a command first
		fails int
		again func(*life)
	}{
		"asked again":               {true, 1, func(l *life) { l.asks(l.is(StateActive).PauseUntil(l.clock.Now())) }},
		"asked twice again":         {true, 2, func(l *life) { l.asksInVain(l.is(StateActive).Leaving); l.asks(l.is(StateActive).Leaving) }},
		"terminated then":           {true, 1, func(l *life) { l.end(errTerminated) }},
		"expires then":              {true, 1, expire},
		"terminated, and sticks":    {false, teardownTries - 1, func(l *life) { l.end(errTerminated) }},
		"asked, terminated, sticks": {true, teardownTries, func(l *life) { l.end(errTerminated) }},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeps(t)
			k.served = &sticky{Provider: k.provider, fails: c.fails}
			l := k.start()
			first := k.is(StateActive).KeepUntil(k.clock.Now())
			if c.asked {
				first = sandbox.At(k.clock.Now().Add(72 * time.Hour))
				l.asksInVain(first)
				if now := k.is(StateActive); now.Leaving != first {
					t.Errorf("%+v", now)
				}
				k.clock.Advance(time.Second)
			}
			c.again(l)
			if err := l.ends(); err != nil {
				t.Error(err)
			}
			if now := k.is(StatePaused); now.Snapshot.ExpiresAt != first || now.Leaving != "" || k.snapshots() != 1 {
				t.Errorf("expected until %s, got %+v", first, now)
			}
		})
	}
}

// asks pauses the session.
func (l *life) asks(until sandbox.Timestamp) {
	l.Helper()
	if _, err := l.session.Client.Release(l.Context(), l.machine(), sandbox.ReleaseRequest{ExpiresAt: until}); err != nil {
		l.Fatal(err)
	}
}

// asksInVain does so where it sticks.
func (l *life) asksInVain(until sandbox.Timestamp) {
	l.Helper()
	if _, err := l.session.Client.Release(l.Context(), l.machine(), sandbox.ReleaseRequest{ExpiresAt: until}); !errors.Is(err, notRemoved) {
		l.Fatal(err)
	}
}

// meanwhile is a provider that has released a machine while something else happens.
type meanwhile struct {
	sandbox.Provider
	do func(sandbox.InstanceID)
}

func (p *meanwhile) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	h, err := p.Provider.Release(ctx, id, r)
	p.do(id)
	return h, err
}

// Whoever ends the session between the end of its machine and its record: what was
// kept is on it, with the machine that it was taken of.
func TestAPauseThatIsOvertakenIsOnTheRecord(t *testing.T) {
	for name, overtake := range map[string]func(*life, sandbox.InstanceID){
		"destroyed": func(l *life, id sandbox.InstanceID) {
			if err := l.session.Client.Destroy(l.Context(), id); err != nil {
				l.Error(err)
			}
		},
		"terminated":  func(l *life, _ sandbox.InstanceID) { l.end(errTerminated) },
		"interrupted": func(l *life, _ sandbox.InstanceID) { l.end(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeps(t)
			p := &meanwhile{Provider: k.provider}
			k.served = p
			l := k.start()
			p.do = func(id sandbox.InstanceID) { overtake(l, id) }
			id := l.machine()
			// The answer may be lost with the server: the record counts.
			_, _ = l.session.Client.Release(t.Context(), id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(k.clock.Now().Add(72 * time.Hour))})
			if err := l.ends(); err != nil {
				t.Error(err)
			}
			if now := k.is(StatePaused); now.Instance.InstanceID != id || k.snapshots() != 1 {
				t.Errorf("%+v", now)
			}
		})
	}
}
