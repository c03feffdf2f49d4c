package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// However far Keep came, a starter that gives up leaves no session that lives.
func TestAStarterThatGivesUpLeavesNothing(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		comesTo func(*testing.T, *Starting)
		ctx     context.Context // of Abandon
	}{
		"before the word": {func(t *testing.T, s *Starting) {
			if err := s.Keep(done); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}, t.Context()},
		"the answer is not awaited": {func(t *testing.T, s *Starting) {
			s.patience = time.Nanosecond
			if err := s.Keep(t.Context()); err != nil && !Silent.Is(err) { // it may have been quick
				t.Error(err)
			}
			eventually(t, "it is kept", func() bool {
				r, err := placeOf(s.stateDir, "s").record()
				return err == nil && r.State == StateActive
			})
		}, t.Context()},
		"the answer is heard and its record is not read": {func(t *testing.T, s *Starting) {
			dir := s.stateDir
			s.stateDir = t.TempDir()
			if err := s.Keep(t.Context()); !Silent.Is(err) {
				t.Error(err)
			}
			s.stateDir = dir
		}, t.Context()},
		"after it": {func(t *testing.T, s *Starting) {
			if err := s.Keep(t.Context()); err != nil {
				t.Error(err)
			}
		}, t.Context()},
		"with no time at all": {func(*testing.T, *Starting) {}, done},
		"the keeper is stopped": {func(t *testing.T, s *Starting) {
			if err := s.Record.signal(unix.SIGSTOP); err != nil {
				t.Error(err)
			}
			eventually(t, "each of its threads is", func() bool {
				threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.Record.PID))
				return len(threads) > 0 && !slices.ContainsFunc(threads, func(file string) bool {
					text, err := os.ReadFile(file)
					return err != nil || !strings.Contains(string(text), ") T ")
				})
			})
			s.patience = time.Millisecond
			if err := s.Keep(t.Context()); !Silent.Is(err) {
				t.Error(err)
			}
		}, done},
	} {
		t.Run(name, func(t *testing.T) {
			s := starting(t, stateDir(t), "s")
			machine(t, s.Session)
			c.comesTo(t, s)
			if err := s.Abandon(c.ctx); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(placeOf(s.stateDir, "s").dir); !errors.Is(err, os.ErrNotExist) {
				t.Error("the session is still there", err)
			}
		})
	}
}

// A wait that was cut short does not cut the next one.
func TestTheCordHearsAgain(t *testing.T) {
	ours, theirs, err := cordPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	other, err := newCord(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := ours.hear(done); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := other.say(said{Word: kept}); err != nil {
			t.Fatal(err)
		}
		if m, err := ours.hear(t.Context()); err != nil || m.Word != kept {
			t.Fatal(m, err)
		}
	}
}
