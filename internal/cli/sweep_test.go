package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/sandbox"
)

// TestASweepTakesNoSnapshotThatHasNotExpired: neither the person's sweep nor the one
// for a keeper that is gone knows what is pinned.
func TestASweepTakesNoSnapshotThatHasNotExpired(t *testing.T) {
	state := stateOfItsOwn(t)
	if code := Run(t.Context(), []string{"sweep"}, nil, new(bytes.Buffer), new(bytes.Buffer)); code != 0 {
		t.Fatalf("a first sweep: %d", code)
	}
	// Made yesterday, as a clock says that is set so.
	yesterday := time.Now().Add(-24 * time.Hour)
	areas := []string{"runsc", "runc", "runsc-tested", "runc-served"}
	made, path := map[string]sandbox.SnapshotID{}, map[string]string{}
	for _, area := range areas {
		for name, until := range map[string]time.Duration{"expired": 23 * time.Hour, "kept": 48 * time.Hour} {
			made[area+" "+name], path[area+" "+name] = keep(t, state, area, yesterday, until)
		}
	}

	// For a session of one driver: that host's, and no other's.
	o, err := all.Open(all.NativeRunc, all.Options{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sweepSession(context.Background(), o, "s"), o.Close()); err != nil {
		t.Error(err)
	}
	holds := func(when string, gone ...string) {
		t.Helper()
		for what, at := range path {
			if want := !slices.Contains(gone, what); there(at) != want {
				t.Errorf("after the sweep %s, %s is there: %v", when, what, !want)
			}
		}
	}
	holds("for a session", "runc expired")
	said := ""
	for _, what := range []string{"runsc expired", "runsc-tested expired", "runc-served expired"} {
		said += "removed snapshot " + string(made[what]) + ", which had expired\n"
	}
	for _, want := range []string{said, "nothing to remove\n"} {
		var out, complaints bytes.Buffer
		if code := Run(t.Context(), []string{"sweep"}, nil, &out, &complaints); code != 0 || out.String() != want {
			t.Errorf("exit %d, %q, %s; want %q", code, out.String(), complaints.String(), want)
		}
	}
	holds("of a person", "runc expired", "runsc expired", "runsc-tested expired", "runc-served expired")
}
