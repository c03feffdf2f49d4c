package cli

import (
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/sandbox"
)

func TestATimeInItsTwoLargestUnits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Hour, "59s": 59*time.Second + 999*time.Millisecond, "1m": time.Minute, "1m1s": 61 * time.Second,
		"1h": time.Hour + 59*time.Second, "1h1m": time.Hour + time.Minute, "23h59m": 24*time.Hour - time.Second,
		"1d": 24*time.Hour + time.Minute, "6d23h": 7*24*time.Hour - time.Second, "30d": 30 * 24 * time.Hour,
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for at, want := range map[string]string{"": "-", "soon": "-", "2026-01-01T00:00:00.000Z": "past", "2026-01-01T00:01:00.000Z": "in 1m"} {
		if got := until(now, at); got != want {
			t.Errorf("%q: %s, want %s", at, got, want)
		}
	}
	if got := since(now, "2025-12-31T00:00:00.000Z"); got != "1d" {
		t.Errorf("%s", got)
	}
}

// What a record says is one thing, and what there is another.
func TestWhatIsToldOfASession(t *testing.T) {
	in := func(d time.Duration) sandbox.Timestamp { return sandbox.At(time.Now().Add(d)) }
	kept := func(id sandbox.SnapshotID, made, expires time.Duration) native.KeptSnapshot {
		return native.KeptSnapshot{Bytes: 10, Snapshot: sandbox.Snapshot{SnapshotID: id, SessionID: "s", CreatedAt: in(made), ExpiresAt: in(expires)}}
	}
	old, last := kept("old", -3*time.Hour, time.Hour), kept("last", -2*time.Hour, time.Hour)
	expired := kept("expired", -time.Hour, -time.Minute)
	for name, c := range map[string]struct {
		state     keeper.State
		record    *sandbox.Snapshot
		there     []native.KeptSnapshot
		want      keeper.State
		id        string // that it is, or falls back to
		diskBytes int64
	}{
		"paused":                        {keeper.StatePaused, &last.Snapshot, []native.KeptSnapshot{last}, keeper.StatePaused, "last", 10},
		"paused, and expired":           {keeper.StatePaused, &expired.Snapshot, []native.KeptSnapshot{expired}, keeper.StateLost, "", 10},
		"paused, and destroyed":         {keeper.StatePaused, &last.Snapshot, nil, keeper.StateLost, "", 0},
		"lost, with a pause before":     {keeper.StateLost, &old.Snapshot, []native.KeptSnapshot{old}, keeper.StateLost, "old", 10},
		"lost while it was paused":      {keeper.StateLost, &old.Snapshot, []native.KeptSnapshot{old, last, expired}, keeper.StateLost, "last", 30},
		"lost before anything was kept": {keeper.StateLost, nil, nil, keeper.StateLost, "", 0},
	} {
		s := &store{snapshots: map[string][]native.KeptSnapshot{"s": c.there}}
		l := keeper.Listed{Record: keeper.Record{SessionID: "s", State: c.state, KeepMillis: 1, Snapshot: c.record, Instance: &sandbox.Instance{}}}
		line := lineOf(l)
		s.tell(l, &line)
		if line.State != string(c.want) || line.SnapshotID != c.id || line.DiskBytes != c.diskBytes {
			t.Errorf("%s: %+v", name, line)
		}
	}
}
