package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/faultproxy"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// stale is what a Runner is told that another one took the place of.
var stale = &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpOpenProcess, Expected: wire.ExpectedCurrentLease, Actual: wire.ActualStaleLease}

// reading is what one Runner got of a process.
type reading struct {
	out []byte
	err error
}

// Two Runners that hold the same lease race for one process. One of them gets
// all of it; the other stops and says so. Neither happens twice, neither to
// both, also where the link breaks while they fight.
func TestW69W70TwoRunnersRacingACursor(t *testing.T) {
	settled(t)
	const lines = 20000
	script := fmt.Sprint("read GO; seq ", lines)
	want := &strings.Builder{}
	for n := 1; n <= lines; n++ {
		fmt.Fprintln(want, n)
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			breaking := faultproxy.Seeded(uint64(round), 0.5*float64(round%3), 4<<10, faultproxy.CutResponse, faultproxy.Refuse, faultproxy.Double)
			tear := func(e faultproxy.Exchange) faultproxy.Fault {
				if e.Path != wire.ProcessStream.Path() || e.Nth > 8 {
					return faultproxy.Fault{}
				}
				return breaking(e)
			}
			s := serve(t, memory.New(memory.Options{Seed: "race"}))
			runners := []*link{s.connect(tear, nil), s.connect(tear, nil)}
			id, err := active(t.Context(), runners[0], "s")
			if err != nil {
				t.Fatal(err)
			}
			pid := string(wire.NewProcessID())
			procs, results := make([]sandbox.Process, 2), make([]chan reading, 2)
			opened := make(chan error, 2)
			for i, r := range runners {
				go func() {
					var err error
					procs[i], err = r.OpenProcess(t.Context(), id, pid, process(script))
					opened <- err
				}()
			}
			for range runners {
				if err := <-opened; err != nil {
					t.Fatal(err)
				}
			}
			for i, p := range procs {
				results[i] = make(chan reading, 1)
				go func() {
					out, err := io.ReadAll(p.Output())
					results[i] <- reading{out, err}
				}()
			}
			// One of them stops while the process writes nothing at all.
			var loser, winner int
			var lost reading
			select {
			case lost = <-results[0]:
				loser, winner = 0, 1
			case lost = <-results[1]:
				loser, winner = 1, 0
			case <-time.After(20 * time.Second):
				t.Fatal("both go on")
			}
			if !errors.Is(lost.err, stale) || len(lost.out) > 0 {
				t.Errorf("the loser got %q and %v", lost.out, lost.err)
			}
			for range 2 {
				if _, err := procs[loser].Wait(t.Context()); !errors.Is(err, stale) {
					t.Errorf("the loser waits for %v", err)
				}
			}
			if _, err := io.WriteString(procs[loser].Input(), "GO\n"); !errors.Is(err, stale) {
				t.Errorf("the loser writes: %v", err)
			}
			if _, err := io.WriteString(procs[winner].Input(), "GO\n"); err != nil {
				t.Errorf("the winner writes: %v", err)
			}
			won := <-results[winner]
			if won.err != nil || string(won.out) != want.String() {
				t.Errorf("the winner got %d bytes of %d and %v", len(won.out), want.Len(), won.err)
			}
			if exit, err := procs[winner].Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
				t.Error(exit, err)
			}
		})
	}
}

// A Runner of a later epoch silences the stream of the earlier one within a
// second: no byte comes after, none is taken, and the earlier one is told.
func TestW88AnEpochAdvanceSilencesTheOldStream(t *testing.T) {
	settled(t)
	s := serve(t, memory.New(memory.Options{Seed: "epoch"}))
	old := s.connect(clean, nil)
	next := s.connect(clean, func(o *client.Options) { o.Lease = wire.Lease{ID: lease.ID, Epoch: 2} })
	for round := range 10 {
		// Every round is a lease of its own.
		name := fmt.Sprint("lease.", round)
		r := provision(name)
		r.LeaseID = name
		h, err := old.Provision(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		id := h.Value.InstanceID
		if _, err := old.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p, err := old.OpenProcess(t.Context(), id, string(wire.NewProcessID()), process("while read A; do echo $A; done"))
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 5)
		if _, err := io.WriteString(p.Input(), "line\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p.Output(), line); err != nil || string(line) != "line\n" {
			t.Fatalf("%q %v", line, err)
		}
		ended := make(chan reading, 1)
		go func() {
			out, err := io.ReadAll(p.Output())
			ended <- reading{out, err}
		}()

		q := provision(name + ".next")
		q.LeaseID, q.LeaseEpoch = name, 2
		began := time.Now()
		other, err := next.Provision(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		advanced := time.Now()
		got := <-ended
		if took := time.Since(advanced); took > time.Second {
			t.Errorf("silenced after %v", took)
		}
		if len(got.out) > 0 || !errors.Is(got.err, stale) {
			t.Errorf("%q, %v", got.out, got.err)
		}
		if n, err := io.WriteString(p.Input(), "late\n"); n != 0 || !errors.Is(err, stale) {
			t.Errorf("a late write: %d, %v", n, err)
		}
		if _, err := old.Execute(t.Context(), id, command("true")); !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: wire.ActualStaleLease}) {
			t.Errorf("a late command: %v", err)
		}
		if round == 0 {
			t.Logf("advance %v, silence %v after it", advanced.Sub(began), time.Since(advanced))
		}
		if err := other.Rollback(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
