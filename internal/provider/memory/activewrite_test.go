package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

func (f *fixture) begin(id sandbox.InstanceID, targets ...string) sandbox.ActiveWrite {
	f.Helper()
	w, err := f.p.BeginActiveWrite(f.ctx(), id, targets)
	f.must(err)
	return w
}

func (f *fixture) stage(w sandbox.ActiveWrite, path, content string) {
	f.Helper()
	f.must(w.Stage(f.ctx(), sandbox.FileWrite{Path: path, Content: []byte(content)}))
}

func (f *fixture) journal(w sandbox.ActiveWrite, want sandbox.JournalState) {
	f.Helper()
	got, err := w.Inspect(f.ctx())
	f.must(err)
	if got != want {
		f.Errorf("journal %s, want %s", got, want)
	}
}

const rw = "/workspace/rw"

func TestActiveWrite(t *testing.T) {
	for _, retention := range []sandbox.RetentionMode{sandbox.RetentionDurable, sandbox.RetentionEphemeralZDR} {
		f := newFixture(t)
		id := f.active(with(func(r *sandbox.ProvisionRequest) { r.Profile.RetentionMode = retention }))
		f.sh(id, "echo old >/workspace/rw/a")
		other := f.begin(id, rw+"/a", rw+"/other")
		f.stage(other, rw+"/a", "other")

		w := f.begin(id, rw+"/a", rw+"/new/deep/b")
		f.journal(w, sandbox.JournalOpen)
		f.stage(w, rw+"/a", "first")
		f.stage(w, rw+"/a", "second")
		f.must(w.Stage(f.ctx(), sandbox.FileWrite{Path: rw + "/new/deep/b", Content: []byte("b"), Executable: true}))
		if got := f.sh(id, "ls /workspace/rw; cat /workspace/rw/a"); got != "a\nsealed\nold\n" {
			t.Errorf("a staged file shows: %q", got)
		}
		marks := 0
		f.must(w.Dispatch(f.ctx(), func() {
			marks++
			f.journal(w, sandbox.JournalOpen) // the marker comes before the change
			f.want(w.Abort(f.ctx()), sandbox.Conflict(sandbox.OpBeginActiveWrite, "open", "dispatched"))
		}))
		f.journal(w, sandbox.JournalCommitted)
		if got := f.sh(id, "cat /workspace/rw/a /workspace/rw/new/deep/b; test -x /workspace/rw/new/deep/b && echo x"); got != "secondbx\n" {
			t.Errorf("%q", got)
		}
		committed := sandbox.Conflict(sandbox.OpBeginActiveWrite, "open", "committed")
		f.want(w.Dispatch(f.ctx(), func() { marks++ }), committed)
		f.want(w.Abort(f.ctx()), committed)
		f.want(w.Stage(f.ctx(), sandbox.FileWrite{Path: rw + "/a"}), committed)
		if marks != 1 {
			t.Errorf("%d marks", marks)
		}
		// Another's open transaction is untouched.
		f.journal(other, sandbox.JournalOpen)
		f.must(other.Abort(f.ctx()))
		f.must(other.Abort(f.ctx()))
		f.journal(other, sandbox.JournalRolledBack)
		f.want(other.Dispatch(f.ctx(), func() { t.Error("marked") }), sandbox.Conflict(sandbox.OpBeginActiveWrite, "open", "rolled_back"))
	}
}

func TestActiveWriteRefusesTargets(t *testing.T) {
	because := func(reason string) *sandbox.Error {
		return &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpBeginActiveWrite, Reason: reason}
	}
	outside, ancestor, special := because(sandbox.ReasonOutsideRoot), because(sandbox.ReasonAncestorConflict), because(sandbox.ReasonNotRegular)
	bad := &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpBeginActiveWrite, Reason: sandbox.ReasonInvalidRequest}
	for _, c := range []struct {
		name    string
		targets []string
		want    *sandbox.Error
	}{
		{"none", nil, bad},
		{"too many", make([]string, sandbox.MaxReadFiles+1), bad},
		{"form", []string{rw + "/../x"}, bad},
		{"no mount", []string{"/tmp/x"}, outside},
		{"output tree", []string{sandbox.OutputPath + "/x"}, outside},
		{"the mount itself", []string{rw}, outside},
		{"read-only mount", []string{"/workspace/ro/x"}, outside},
		{"nested read-only mount", []string{rw + "/sealed/x"}, outside},
		{"two mounts", []string{rw + "/x", rw + "/own/x"}, outside},
		{"twice", []string{rw + "/x", rw + "/x"}, ancestor},
		{"ancestor", []string{rw + "/x", rw + "/x/y"}, ancestor},
		{"descendant", []string{rw + "/x/y", rw + "/x"}, ancestor},
		{"directory", []string{rw + "/d"}, special},
		{"below a file", []string{rw + "/f/x"}, ancestor},
		{"link", []string{rw + "/l"}, outside},
		{"below a link", []string{rw + "/l/x"}, outside},
		{"fifo", []string{rw + "/p"}, special},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			id := f.active(with(func(r *sandbox.ProvisionRequest) {
				r.Mounts = append(r.Mounts, sandbox.Mount{MountPath: rw + "/own", Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory})
			}))
			f.sh(id, "cd /workspace/rw; mkdir d; echo >f; ln -s d l; mkfifo p")
			_, err := f.p.BeginActiveWrite(f.ctx(), id, c.targets)
			f.want(err, c.want)
		})
	}
}

func TestActiveWriteRefusesBodies(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	w := f.begin(id, rw+"/a", rw+"/b")
	for _, c := range []struct {
		w    sandbox.FileWrite
		want *sandbox.Error
	}{
		{sandbox.FileWrite{Path: rw + "/c"}, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: rw + "/c"}},
		{sandbox.FileWrite{Path: rw + "/a", Symlink: "x"}, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}},
		{sandbox.FileWrite{Path: rw + "/a", Content: make([]byte, sandbox.MaxFileBytes+1)}, &sandbox.Error{Kind: sandbox.FileTooLarge}},
	} {
		f.want(w.Stage(f.ctx(), c.w), c.want)
	}
	f.stage(w, rw+"/a", "a")
	f.want(w.Dispatch(f.ctx(), func() { t.Error("marked") }), sandbox.Conflict(sandbox.OpBeginActiveWrite, "2 targets staged", "1"))
	f.journal(w, sandbox.JournalOpen)
	f.must(w.Abort(f.ctx()))
}

// What the workload does between the beginning and the publication cannot make
// a half of it, or lead it elsewhere.
func TestActiveWriteAllOrNothing(t *testing.T) {
	for _, c := range []struct {
		name, sabotage string
		want           *sandbox.Error
	}{
		{"a parent becomes a link", "mv d e; ln -s /tmp d", &sandbox.Error{Reason: sandbox.ReasonChanged}},
		{"a parent becomes a file", "rm -r d; echo >d", &sandbox.Error{Reason: sandbox.ReasonChanged}},
		{"a target becomes a directory", "mkdir d/b", &sandbox.Error{Reason: sandbox.ReasonChanged}},
		{"a target becomes a link", "ln -s /tmp/x d/b", &sandbox.Error{Reason: sandbox.ReasonChanged}},
		{"the disk fills", "yes >fill", &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireResources}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			id := f.active(with(func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.DiskBytes = 1 << 20 }))
			f.sh(id, "cd /workspace/rw; echo old >a; mkdir d")
			w := f.begin(id, rw+"/a", rw+"/d/b")
			f.stage(w, rw+"/a", "new, and longer than before")
			f.stage(w, rw+"/d/b", "new")
			f.run(id, "cd /workspace/rw; "+c.sabotage)
			used := f.p.instances[id].m.tree.used
			marked := false
			f.want(w.Dispatch(f.ctx(), func() { marked = true }), c.want)
			f.journal(w, sandbox.JournalRolledBack)
			if got := f.sh(id, "cat /workspace/rw/a; ls /tmp"); got != "old\n" || !marked || f.p.instances[id].m.tree.used != used {
				t.Errorf("%q", got)
			}
			f.must(w.Abort(f.ctx()))
		})
	}
}

func TestActiveWriteEndsWithInstance(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	w, late := f.begin(id, rw+"/a"), f.begin(id, rw+"/b")
	f.stage(w, rw+"/a", "a")
	f.stage(late, rw+"/b", "b")
	err := late.Dispatch(f.ctx(), func() { f.must(f.p.Destroy(f.ctx(), id)) })
	f.want(err, sandbox.Failed(sandbox.OpBeginActiveWrite, sandbox.ReasonInstanceLost, nil))
	f.journal(w, sandbox.JournalRolledBack)
	f.journal(late, sandbox.JournalRolledBack)
	f.want(w.Stage(f.ctx(), sandbox.FileWrite{Path: rw + "/a"}), sandbox.NoInstance(sandbox.OpBeginActiveWrite, id))
	f.must(w.Abort(f.ctx()))
}

// A workload that writes all the time never sees the batch half published.
func TestActiveWriteIsAtomic(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	p := f.open(id, "cd /workspace/rw; while true; do cat a b >/dev/null; mkdir x; rm -r x; done 2>/dev/null")
	for n := range 60 {
		body := string(rune('a' + n%26))
		w := f.begin(id, rw+"/a", rw+"/b")
		f.stage(w, rw+"/a", body)
		f.stage(w, rw+"/b", body)
		done := make(chan error, 1)
		go func() { done <- w.Dispatch(f.Context(), func() {}) }()
		for running := true; running; {
			select {
			case err := <-done:
				f.must(err)
				running = false
			default:
			}
			// One lock for both: what a listing sees is one moment.
			l, err := f.p.ListDir(f.ctx(), id, sandbox.Listing{Root: rw, MaxEntries: 9})
			f.must(err)
			if len(l) == 1 || len(l) == 2 && l[0].Digest != l[1].Digest {
				t.Fatal(l)
			}
		}
	}
	f.must(p.Destroy(f.ctx()))
}

// Members on one instance at once, with its end in between: each answers or
// says that the instance is gone, and nothing is left.
func TestConcurrentMembers(t *testing.T) {
	f := newFixture(t)
	for range 20 {
		id := f.active(request())
		calls := []func() error{
			func() error {
				_, err := f.p.Execute(f.ctx(), id, shellCommand("yes | head -c 300000 | wc -c >/workspace/rw/n; ls /workspace/rw"))
				return err
			},
			func() error {
				return f.p.WriteFile(f.ctx(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/d/x", Content: []byte("x")})
			},
			func() error {
				_, err := f.p.ListProjectDir(f.ctx(), id, sandbox.Listing{Root: rw, MaxEntries: 99})
				return err
			},
			func() error {
				w, err := f.p.BeginActiveWrite(f.ctx(), id, []string{rw + "/w"})
				if err == nil {
					err = errors.Join(w.Stage(f.ctx(), sandbox.FileWrite{Path: rw + "/w"}), w.Dispatch(f.ctx(), func() {}))
				}
				return err
			},
			func() error {
				h, err := f.p.Snapshot(f.ctx(), id, sandbox.SnapshotRequest{ExpiresAt: at(9 * time.Hour)})
				if err == nil {
					err = h.Rollback(f.ctx())
				}
				return err
			},
			func() error {
				p, err := f.p.OpenProcess(f.ctx(), id, "p", sandbox.ProcessRequest{Executable: "yes", WorkingDirectory: "/"})
				if err == nil {
					_, err = p.Wait(f.ctx())
				}
				return err
			},
			func() error {
				_, err := f.p.Release(f.ctx(), id, sandbox.ReleaseRequest{ExpiresAt: at(time.Hour)})
				return err
			},
			func() error { return f.p.Destroy(f.ctx(), id) },
		}
		results := make(chan error)
		for _, call := range calls {
			go func() { results <- call() }()
		}
		for range calls {
			err := <-results
			lost := errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}) || errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonInstanceLost})
			if err != nil && !lost && !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}) {
				t.Error(err)
			}
		}
		if len(f.p.instances) != 0 {
			t.Error("an instance was left")
		}
	}
	// Whatever a release settled is whole: it has the mounts.
	for _, s := range f.p.snapshots {
		if s.root.kids["workspace"] == nil {
			t.Error("a release settled an erased tree")
		}
	}
}

func BenchmarkProvisionActivateExecute(b *testing.B) {
	p := New(Options{Clock: NewManual(start)})
	r, c := request(), shellCommand("echo hello >/workspace/rw/f; cat /workspace/rw/f")
	r.ExpiresAt = at(1000000 * time.Hour)
	for b.Loop() {
		h, err := p.Provision(b.Context(), r)
		if err == nil {
			_, err = p.Activate(b.Context(), h.Value.InstanceID)
		}
		if err == nil {
			_, err = p.Execute(b.Context(), h.Value.InstanceID, c)
		}
		if err == nil {
			err = p.Destroy(b.Context(), h.Value.InstanceID)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
