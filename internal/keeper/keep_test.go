package keeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
)

// keeps is a session that keeps what is in it, with one keeper after the other in
// this process, over one provider that outlives them.
type keeps struct {
	*testing.T
	dir      string
	clock    manual
	provider *memory.Provider
	served   sandbox.Provider // that, or one over it
	live     LiveReleaser     // of a live session
}

func newKeeps(t *testing.T) *keeps {
	t.Helper()
	k := &keeps{T: t, dir: stateDir(t), clock: manual{memory.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}}
	k.provider = memory.New(memory.Options{Clock: k.clock.Manual})
	k.served = k.provider
	t.Cleanup(func() {
		if err := End(context.Background(), k.dir, "s", Ending{Reclaim: k.reclaim}); err != nil && !NotFound.Is(err) {
			t.Error(err)
		}
		if left := k.provider.Census(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	return k
}

// reclaim destroys what the record names.
func (k *keeps) reclaim(ctx context.Context, l Listed) error {
	if l.Snapshot == nil {
		return nil
	}
	return k.provider.DestroySnapshot(ctx, l.Snapshot.SnapshotID)
}

// life is one keeper.
type life struct {
	*keeps
	end     context.CancelCauseFunc
	cord    *cord
	session *Session
	done    chan error
}

// begin starts a keeper. It hangs on the cord.
func (k *keeps) begin(resume bool) *life {
	k.Helper()
	ours, theirs, err := cordPair()
	if err != nil {
		k.Fatal(err)
	}
	other, err := newCord(theirs)
	if err != nil {
		k.Fatal(err)
	}
	l := &life{keeps: k, cord: ours, done: make(chan error, 1)}
	in := Inputs{
		Dir: k.dir, SessionID: "s", Provider: "memory", LeaseID: mint("lea_"), ExpiresAt: sandbox.At(k.clock.Now().Add(time.Hour)),
		KeepMillis: (48 * time.Hour).Milliseconds(), Resume: resume, Live: k.live != nil,
		Registries: "/etc/registries.json",
	}
	ctx, end := context.WithCancelCause(context.Background())
	l.end = end
	go func() {
		kept := &keeper{in: in, cord: other, clock: k.clock}
		err := kept.run(ctx, func(context.Context, Inputs) (*Opened, error) {
			return &Opened{Provider: k.served, Close: func() error { return nil }, ReleaseLive: k.live}, nil
		})
		other.Close()
		l.done <- err
	}()
	k.Cleanup(func() { end(nil); ours.Close() })
	if m, err := ours.hear(k.Context()); err != nil || m.Word != ready {
		k.Fatal(m, err)
	}
	r, err := placeOf(k.dir, "s").record()
	if err == nil {
		l.session, err = call(k.Context(), k.dir, r)
	}
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { l.session.Close() })
	return l
}

// asked is the request for a machine of the session.
func (l *life) asked() sandbox.ProvisionRequest {
	r := request(l.session.Record)
	r.Profile.RetentionMode = sandbox.RetentionDurable
	return r
}

// start begins a session, with a machine, and keeps it.
func (k *keeps) start() *life {
	k.Helper()
	l := k.begin(false)
	h, err := l.session.Client.Provision(k.Context(), l.asked())
	if err == nil {
		_, err = l.session.Client.Activate(k.Context(), h.Value.InstanceID)
	}
	if err != nil {
		k.Fatal(err)
	}
	l.keep()
	return l
}

// resume takes it up again.
func (k *keeps) resume() *life {
	k.Helper()
	l := k.begin(true)
	if _, err := l.session.Client.Resume(k.Context(), sandbox.ResumeRequest{Request: l.asked(), Snapshot: *l.session.Record.Snapshot}); err != nil {
		k.Fatal(err)
	}
	l.keep()
	return l
}

func (l *life) keep() {
	l.Helper()
	err := l.cord.say(said{Word: keep})
	if err == nil {
		var m said
		if m, err = l.cord.hear(l.Context()); err == nil && m.Word != kept {
			err = errors.New(string(m.Word) + m.Text)
		}
	}
	if err != nil {
		l.Fatal(err)
	}
}

// machine is the id of the one that the record names.
func (l *life) machine() sandbox.InstanceID {
	l.Helper()
	r, err := placeOf(l.dir, "s").record()
	if err != nil || r.Instance == nil {
		l.Fatal(r, err)
	}
	return r.Instance.InstanceID
}

// ends awaits the end of the keeper.
func (l *life) ends() error {
	l.Helper()
	select {
	case err := <-l.done:
		return err
	case <-time.After(time.Minute):
		l.Fatal("the keeper does not end")
		return nil
	}
}

// is holds what the disk says of the session to what it should, and gives it.
func (k *keeps) is(want State) Listed {
	k.Helper()
	l, err := Find(k.dir, "s")
	if err != nil || l.State != want {
		k.Fatalf("expected %s, got %s, %v", want, l.State, err)
	}
	return l
}

// snapshots is how many there are.
func (k *keeps) snapshots() (n int) {
	for _, left := range k.provider.Census() {
		if strings.HasPrefix(left, "snapshot-") {
			n++
		}
	}
	return n
}

func TestWhatIsKeptIsPausedAndTakenUpAgain(t *testing.T) {
	k := newKeeps(t)
	l := k.start()
	first := l.machine()
	until := sandbox.At(k.clock.Now().Add(72 * time.Hour))
	if _, err := l.session.Client.Release(t.Context(), first, sandbox.ReleaseRequest{ExpiresAt: until}); err != nil {
		t.Fatal(err)
	}
	if err := l.ends(); err != nil {
		t.Fatal(err)
	}
	was := k.is(StatePaused)
	if was.Registries != "/etc/registries.json" || was.Snapshot.ExpiresAt != until || was.Instance.InstanceID != first {
		t.Errorf("%+v", was)
	}
	for _, name := range []string{tokenName, socketName} {
		if _, err := os.Lstat(placeOf(k.dir, "s").file(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), k.dir, "s"); !Paused.Is(err) {
		t.Errorf("%v", err)
	}
	if ids, err := Sweep(t.Context(), k.dir, Ending{}); len(ids) > 0 || err != nil {
		t.Errorf("%q, %v", ids, err)
	}
	k.clock.Advance(time.Minute)
	l = k.resume()
	if now := k.is(StateActive); now.CreatedAt != was.CreatedAt || now.Snapshot.SnapshotID != was.Snapshot.SnapshotID || now.LeaseID == was.LeaseID {
		t.Errorf("%+v", now)
	}
	if l.machine() == first {
		t.Error("the same machine")
	}
	// The second pause takes the first one's place.
	if _, err := l.session.Client.Release(t.Context(), l.machine(), sandbox.ReleaseRequest{ExpiresAt: until}); err != nil {
		t.Fatal(err)
	}
	if err := l.ends(); err != nil {
		t.Fatal(err)
	}
	if now := k.is(StatePaused); now.Snapshot.SnapshotID == was.Snapshot.SnapshotID || k.snapshots() != 1 {
		t.Errorf("%+v, %d snapshots", now, k.snapshots())
	}
}

// However a keeper ends, the disk says what is left of its session.
func TestWhatIsLeftOfASession(t *testing.T) {
	for name, c := range map[string]struct {
		resumed bool
		end     func(*life)
		want    State
		kept    int // snapshots
	}{
		"terminated":             {false, func(l *life) { l.end(errTerminated) }, StatePaused, 1},
		"terminated, resumed":    {true, func(l *life) { l.end(errTerminated) }, StatePaused, 1},
		"interrupted":            {false, func(l *life) { l.end(nil) }, StateLost, 0},
		"interrupted, resumed":   {true, func(l *life) { l.end(nil) }, StateLost, 1},
		"expired":                {false, expire, StatePaused, 1},
		"its machine is no more": {false, func(l *life) { _ = l.session.Client.Destroy(l.Context(), l.machine()) }, StateLost, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeps(t)
			l := k.start()
			if c.resumed {
				l.end(errTerminated)
				if err := l.ends(); err != nil {
					t.Fatal(err)
				}
				l = k.resume()
			}
			c.end(l)
			if err := l.ends(); err != nil {
				t.Fatal(err)
			}
			got := k.is(c.want)
			if n := k.snapshots(); n != c.kept || (got.Snapshot != nil) != (n == 1) {
				t.Errorf("%d snapshots, %+v", n, got.Snapshot)
			}
			if got.Snapshot != nil && !c.resumed {
				if until, err := got.Snapshot.ExpiresAt.Time(); err != nil || until.Sub(k.clock.Now()) > 48*time.Hour || until.Sub(k.clock.Now()) < 46*time.Hour {
					t.Errorf("%v, %v", until, err)
				}
			}
		})
	}
}

// expire moves the clock until the keeper has ended: one that read it just before it
// was moved asks for a timer just after.
func expire(l *life) {
	l.clock.Advance(58 * time.Minute)
	eventually(l.T, "the keeper ends", func() bool {
		select {
		case err := <-l.done:
			l.done <- err
			return true
		default:
		}
		if at, err := l.session.Record.ExpiresAt.Time(); err == nil && l.clock.Now().Before(at.Add(-time.Second)) {
			l.clock.Advance(time.Second)
		}
		return false
	})
}

// A resumption that does not come to its end has changed nothing.
func TestAResumptionThatFailsLeavesItPaused(t *testing.T) {
	for name, fail := range map[string]func(*life){
		"its starter dies":      func(l *life) { l.cord.Close() },
		"it is interrupted":     func(l *life) { l.end(nil) },
		"it is terminated":      func(l *life) { l.end(errTerminated) },
		"with a machine, dies":  func(l *life) { l.made(); l.cord.Close() },
		"with a machine, ended": func(l *life) { l.made(); l.end(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeps(t)
			l := k.start()
			l.end(errTerminated)
			if err := l.ends(); err != nil {
				t.Fatal(err)
			}
			was := k.is(StatePaused)
			l = k.begin(true)
			fail(l)
			if err := l.ends(); err != nil {
				t.Fatal(err)
			}
			if now := k.is(StatePaused); now.Snapshot.SnapshotID != was.Snapshot.SnapshotID || now.LeaseID != was.LeaseID || k.snapshots() != 1 {
				t.Errorf("%+v", now)
			}
			l = k.resume()
			k.is(StateActive)
			l.end(nil)
			if err := l.ends(); err != nil {
				t.Error(err)
			}
		})
	}
}

// made makes the machine of a resumption that nobody keeps yet.
func (l *life) made() {
	l.Helper()
	if _, err := l.session.Client.Resume(l.Context(), sandbox.ResumeRequest{Request: l.asked(), Snapshot: *l.session.Record.Snapshot}); err != nil {
		l.Fatal(err)
	}
}

// What a process leaves that was killed, by what its record says.
func TestWhatTheDiskSaysOfTheKilled(t *testing.T) {
	snapshot := keptSnapshot
	for name, c := range map[string]struct {
		state    State
		snapshot *sandbox.Snapshot
		want     State
		unborn   bool
		swept    bool // where nothing is kept
	}{
		"begun, and nobody was told":  {StateStarting, nil, StateLost, true, true},
		"being resumed":               {StateStarting, &snapshot, StatePaused, false, false},
		"active":                      {StateActive, nil, StateLost, false, true},
		"active, with a pause before": {StateActive, &snapshot, StateLost, false, true},
		"paused":                      {StatePaused, &snapshot, StatePaused, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			h, err := Reserve(dir, Record{SessionID: "s", Provider: "memory", ExpiresAt: inAnHour(), KeepMillis: 1000})
			if err != nil {
				t.Fatal(err)
			}
			r := h.Record
			r.State, r.Instance, r.Snapshot = c.state, &sandbox.Instance{InstanceID: "i"}, c.snapshot
			if err := errors.Join(h.at.write(r), h.Close()); err != nil {
				t.Fatal(err)
			}
			l, err := Find(dir, "s")
			if err != nil || l.State != c.want || l.Unborn != c.unborn || l.CutOff != (name == "being resumed") || l.Keeping() {
				t.Errorf("%+v, %v", l, err)
			}
			keeps := func(kept bool, err error) Ending {
				return Ending{Kept: func(_ context.Context, l Listed) (bool, error) { return kept, err }}
			}
			if ids, err := Sweep(t.Context(), dir, keeps(true, nil)); len(ids) > 0 || err != nil {
				t.Errorf("%q, %v", ids, err)
			}
			if ids, err := Sweep(t.Context(), dir, keeps(false, os.ErrPermission)); len(ids) > 0 || !errors.Is(err, os.ErrPermission) {
				t.Errorf("%q, %v", ids, err) // who cannot look takes nothing
			}
			if ids, err := Sweep(t.Context(), dir, Ending{}); (len(ids) == 1) != c.swept || err != nil {
				t.Errorf("%q, %v", ids, err)
			}
			if ids, err := Sweep(t.Context(), dir, keeps(false, nil)); (len(ids) == 0) != c.swept || err != nil {
				t.Errorf("%q, %v", ids, err)
			}
		})
	}
}

func TestOneCommandHasASession(t *testing.T) {
	dir := stateDir(t)
	if _, err := Hold(t.Context(), dir, "s"); !NotFound.Is(err) {
		t.Errorf("%v", err)
	}
	if _, err := Reserve(dir, Record{SessionID: "s"}); err == nil {
		t.Error("a session that keeps nothing")
	}
	h, err := Reserve(dir, Record{SessionID: "s", Provider: "memory", ExpiresAt: inAnHour(), KeepMillis: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(t.Context(), dir, "s"); !Busy.Is(err) {
		t.Errorf("%v", err)
	}
	if _, err := Reserve(dir, h.Record); !Exists.Is(err) {
		t.Errorf("%v", err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir, SessionID: "s", Provider: "memory", ExpiresAt: inAnHour(), Keep: time.Hour, Resume: true}); !Busy.Is(err) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(h.Pause(sandbox.Instance{InstanceID: "i"}, keptSnapshot), h.Close()); err != nil {
		t.Fatal(err)
	}
	// Who only looks keeps nobody out for long.
	look, err := placeOf(dir, "s").seize(unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	again := make(chan error, 1)
	go func() {
		var err error
		h, err = Hold(context.Background(), dir, "s")
		again <- err
	}()
	look.Close()
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	if h.Record.State != StatePaused || h.Record.Snapshot.SnapshotID != keptSnapshot.SnapshotID {
		t.Errorf("%+v", h.Record)
	}
	if err := h.Discard(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "sessions", "*")); len(files) > 0 {
		t.Errorf("%q", files)
	}
}
