package native

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// pauser is a driver whose machines are paused as a test wants.
type pauser struct {
	machine.Driver
	pause func(ctx context.Context, m machine.Machine) (func() error, error)
}

type paused struct {
	machine.Machine
	d *pauser
}

func (d *pauser) Start(ctx context.Context, s machine.Spec) (machine.Machine, error) {
	m, err := d.Driver.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return &paused{m, d}, nil
}

func (m *paused) Pause(ctx context.Context) (func() error, error) { return m.d.pause(ctx, m.Machine) }

// TestActiveWrite_PauseToken: the token is in the journal before the pause is asked
// for, stays until the pause was seen to end, and goes on to the next journal
// before that one goes.
func TestActiveWrite_PauseToken(t *testing.T) {
	p := newProvider(t, "runc")
	d := &pauser{Driver: p.opt.Driver}
	p.opt.Driver = d
	id := activated(t, p, writeMounts()...)
	journals := func() (all []string) {
		files, err := filepath.Glob(p.place(id).home() + "/writes/*/journal")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			all = append(all, strings.Join(strings.Split(readText(t, f), "\n")[1:4], " "))
		}
		return all
	}
	const none = "--------------------------------"
	write := func(content string) (sandbox.ActiveWrite, error) {
		w := begin(t, p, id, rw+"/a")
		stageIn(t, w, rw+"/a", content)
		return w, w.Dispatch(t.Context(), func() {
			for _, j := range journals() {
				if strings.HasPrefix(j, "dispatched") {
					t.Errorf("in the marker: %q", j)
				}
			}
		})
	}
	var tokens []string
	d.pause = func(ctx context.Context, m machine.Machine) (func() error, error) {
		all := journals()
		if len(all) != 1 || !strings.HasPrefix(all[0], "dispatched  ") || strings.Contains(all[0], "dispatched  "+none) {
			t.Errorf("as the pause is asked for: %q", all)
			return nil, errors.New("no token")
		}
		tokens = append(tokens, strings.Fields(all[0])[1:]...)
		return nil, errors.New("the answer was lost")
	}
	w, err := write("never")
	refusedAs(t, "a pause that failed", err, &sandbox.Error{Reason: sandbox.ReasonProviderError})
	journalIs(t, w, sandbox.JournalRolledBack)
	if all := journals(); len(all) != 1 || all[0] != "rolled_back "+tokens[0]+" "+none {
		t.Errorf("after a pause that failed: %q, %q", all, tokens)
	}
	// It is paused now, but its end is not seen.
	lostEnd := errors.New("the end was lost")
	d.pause = func(ctx context.Context, m machine.Machine) (func() error, error) {
		all := journals()
		if len(all) != 1 || len(strings.Fields(all[0])) != 3 || strings.Fields(all[0])[2] != tokens[0] {
			t.Errorf("the first token was not taken over: %q, %q", all, tokens)
		}
		tokens = append(tokens, strings.Fields(all[0])[1])
		resume, err := m.Pause(ctx)
		return func() error { return errors.Join(resume(), lostEnd) }, err
	}
	w, err = write("second\n")
	refusedAs(t, "an end that was lost", err, &sandbox.Error{Reason: sandbox.ReasonInstanceLost})
	journalIs(t, w, sandbox.JournalCommitted)
	second := tokens[len(tokens)-1]
	if all := journals(); len(all) != 1 || !strings.HasPrefix(all[0], "committed   "+second) {
		t.Errorf("after an end that was lost: %q", all)
	}
	lostEnd = nil
	d.pause = func(ctx context.Context, m machine.Machine) (func() error, error) {
		if all := journals(); len(all) != 1 || strings.Fields(all[0])[2] != second {
			t.Errorf("the second token was not taken over: %q", all)
		}
		return m.Pause(ctx)
	}
	if _, err = write("third\n"); err != nil {
		t.Error(err)
	}
	says(t, p, id, "cat "+rw+"/a", "third\n")
	noWrites(t, p, id)
}

// TestActiveWrite_APauseOfAnotherStays: a publication in the middle of somebody
// else's pause does not end it.
func TestActiveWrite_APauseOfAnotherStays(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p, writeMounts()...)
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		w := begin(t, p, id, rw+"/a")
		stageIn(t, w, rw+"/a", "a\n")
		resume, err := in.machine.Pause(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		marked := make(chan struct{})
		go func() { done <- w.Dispatch(t.Context(), func() { close(marked) }) }()
		<-marked
		select {
		case err := <-done:
			t.Errorf("published under another's pause: %v", err)
		case <-time.After(50 * time.Millisecond): // it can only be seen not to end
		}
		journal, err := os.ReadFile(p.place(id).home() + "/mounts/0/a")
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q, %v", journal, err)
		}
		if err := errors.Join(resume(), <-done); err != nil {
			t.Error(err)
		}
		says(t, p, id, "cat "+rw+"/a", "a\n")
	})
}

// TestActiveWrite_BesideDestroy: a removal waits for no pause that does not come, and
// the publication that waits for it has published nothing.
func TestActiveWrite_BesideDestroy(t *testing.T) {
	p := newProvider(t, "runc")
	d := &pauser{Driver: p.opt.Driver}
	p.opt.Driver = d
	id := activated(t, p, writeMounts()...)
	asked := make(chan struct{})
	d.pause = func(ctx context.Context, _ machine.Machine) (func() error, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w := begin(t, p, id, rw+"/a")
	stageIn(t, w, rw+"/a", "never")
	done := make(chan error, 1)
	go func() { done <- w.Dispatch(t.Context(), func() {}) }()
	<-asked
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Error(err)
	}
	refusedAs(t, "dispatch", <-done, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInstanceLost})
	journalIs(t, w, sandbox.JournalRolledBack)
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// One whose marker runs meanwhile finds nobody to write for.
	id = activated(t, p, writeMounts()...)
	w = begin(t, p, id, rw+"/a")
	stageIn(t, w, rw+"/a", "never")
	err := w.Dispatch(t.Context(), func() {
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
	refusedAs(t, "dispatch", err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInstanceLost})
	journalIs(t, w, sandbox.JournalRolledBack)
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestActiveWrite_EvidenceIsKept: files that cannot be put back keep the workload
// where it is, and everybody else away; a redelivery goes on from there.
func TestActiveWrite_EvidenceIsKept(t *testing.T) {
	p := newProvider(t, "runc")
	id := activated(t, p, writeMounts()...)
	mustExit(t, sh(t, p, id, "cd "+rw+"; echo old >a; echo old >b; echo other >c"), 0)
	host := func(name string) string { return filepath.Join(p.place(id).home(), "mounts/0", name) }
	w := begin(t, p, id, rw+"/a", rw+"/b", rw+"/d/e")
	for _, path := range []string{rw + "/a", rw + "/b", rw + "/d/e"} {
		stageIn(t, w, path, "new\n")
	}
	p.opt.Step = func(step string) {
		if step != "write: published 1" {
			return
		}
		// Somebody else than the workload, for that stands still.
		err := errors.Join(os.Rename(host("a"), host("away")), os.Link(host("c"), host("a")), os.Symlink("/tmp", host("d")))
		if err != nil {
			t.Error(err)
		}
	}
	refusedAs(t, "dispatch", w.Dispatch(t.Context(), func() {}), &sandbox.Error{Reason: sandbox.ReasonIndeterminate})
	journalIs(t, w, sandbox.JournalDispatched)
	refusedAs(t, "again", w.Dispatch(t.Context(), func() { t.Error("marked again") }), &sandbox.Error{Reason: sandbox.ReasonIndeterminate})
	refusedAs(t, "abort", w.Abort(t.Context()), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "dispatched"})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Execute(short, id, shell("cat "+rw+"/b")); err == nil {
		t.Error("a program ran in the middle of it")
	}
	if got, err := p.ReadFile(short, id, sandbox.FileRead{Path: rw + "/b", AllowedRoot: rw, MaximumBytes: 9}); err == nil {
		t.Errorf("%q was read in the middle of it", got)
	}
	if got, err := p.ListDir(short, id, sandbox.Listing{Root: rw, MaxEntries: 9}); err == nil {
		t.Errorf("%v was listed in the middle of it", got)
	}
	if err := errors.Join(os.Remove(host("a")), os.Rename(host("away"), host("a")), os.Remove(host("d"))); err != nil {
		t.Fatal(err)
	}
	refusedAs(t, "a redelivery", w.Dispatch(t.Context(), func() { t.Error("marked again") }), &sandbox.Error{Reason: sandbox.ReasonChanged})
	journalIs(t, w, sandbox.JournalRolledBack)
	says(t, p, id, "cd "+rw+"; cat a b c; ls", "old\nold\nother\na\nb\nc\nown\nsealed\n")
	noWrites(t, p, id)
}

// TestActiveWrite_ZeroRetention: the bodies and the journal of an instance without
// data retention are on no disk: the bytes are in the home, and below the state
// directory nowhere else.
func TestActiveWrite_ZeroRetention(t *testing.T) {
	p := newProvider(t, "runc")
	id := activated(t, p, writeMounts()...)
	secret := "body-" + string(newInstanceID())
	w := begin(t, p, id, rw+"/a", rw+"/b")
	stageIn(t, w, rw+"/a", secret)
	var found []string
	if err := filepath.WalkDir(p.opt.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secret)) {
			var s unix.Statfs_t
			if err := unix.Statfs(path, &s); err != nil {
				return err
			}
			if s.Type != unix.TMPFS_MAGIC || filepath.Base(path) == "journal" {
				t.Errorf("%s has the body, on a filesystem of type %x", path, s.Type)
			}
			found = append(found, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		t.Errorf("the body lies in %v", found)
	}
	if err := p.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left := census(t, p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
