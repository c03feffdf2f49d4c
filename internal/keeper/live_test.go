package keeper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// TestLivePause: it is refused in the provider's own words and harms nothing, and where
// it is not, the session is paused before anybody hears of it, and can be taken up.
func TestLivePause(t *testing.T) {
	k := newKeeps(t)
	refusal := errors.New("live_command: a command\nruns in it")
	var asked []sandbox.Timestamp
	k.live = func(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
		asked = append(asked, r.ExpiresAt)
		if refusal != nil {
			return sandbox.Handoff[sandbox.Released]{}, refusal
		}
		return k.provider.Release(ctx, id, r)
	}
	l := k.start()
	if r := k.is(StateActive); !r.Live {
		t.Errorf("the record does not say that it is live: %+v", r.Record)
	}
	until := sandbox.At(k.clock.Now().Add(72 * time.Hour))
	err := l.session.PauseLive(t.Context(), until)
	if !NotLive.Is(err) || !strings.Contains(err.Error(), "live_command: a command runs in it") {
		t.Fatalf("got %v", err)
	}
	k.is(StateActive)
	if _, err := run(t.Context(), &Session{Record: k.is(StateActive).Record, Client: l.session.Client}, "echo goes on"); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	refusal = nil
	if err := l.session.PauseLive(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	if r := k.is(StatePaused); r.Snapshot.ExpiresAt != until || !r.Live {
		t.Errorf("%+v", r.Record)
	}
	if err := l.ends(); err != nil {
		t.Error(err)
	}
	if len(asked) != 2 || asked[0] != until || asked[1] != until {
		t.Errorf("asked %v", asked)
	}
	if n := k.snapshots(); n != 1 {
		t.Errorf("%d snapshots", n)
	}
	l = k.resume()
	if r := k.is(StateActive); !r.Live {
		t.Errorf("%+v", r.Record)
	}
	if err := l.session.PauseLive(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	if err := l.ends(); err != nil {
		t.Error(err)
	}
}

// TestLivePause_OfWhatIsNotLive: no session is that was not started so, and nobody
// without its token may ask.
func TestLivePause_OfWhatIsNotLive(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, "s")
	s := called(t, dir, "s")
	if err := s.PauseLive(t.Context(), inAnHour()); !NotLive.Is(err) || !strings.Contains(err.Error(), "not live") {
		t.Errorf("got %v", err)
	}
	c, err := s.dialTunnels(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("TOKEN live " + string(inAnHour()) + "\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := readLine(c, maxTunnelSay); err != nil || line != "no the token is not this session's" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir, SessionID: "t", Provider: "memory", ExpiresAt: inAnHour(), Live: true}); err == nil {
		t.Error("a live session that keeps nothing was made")
	}
}

func FuzzParseLiveAsk(f *testing.F) {
	for _, seed := range []string{"TOKEN live 2026-01-01T00:00:00.000Z", "TOKEN live", "TOKEN live x", " live 2026-01-01T00:00:00.000Z", "TOKEN 7", "TOKEN  live 2026-01-01T00:00:00.000Z", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		token, until, ok := parseLiveAsk(line)
		if ok && (token+" live "+string(until) != line || strings.Contains(token, " ") || !until.Valid()) {
			t.Errorf("%q was read as %q and %q", line, token, until)
		}
		if _, _, err := parseTunnelAsk(line); ok && err == nil {
			t.Errorf("%q is both", line)
		}
	})
}
