package sandboxruntime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// TestBeginActiveWrite_ResolvesTheDeepestMount: an outer read-write mount
// cannot authorize a path inside a nested read-only one.
func TestBeginActiveWrite_ResolvesTheDeepestMount(t *testing.T) {
	outside := sandbox.ReasonOutsideRoot
	const deep = cache + "/rw"
	for name, c := range map[string]struct {
		targets []string
		reason  string
	}{
		"one":                         {[]string{repo + "/a"}, ""},
		"several":                     {[]string{repo + "/a", repo + "/d/b", repo + "/c"}, ""},
		"nested read-write":           {[]string{deep + "/a"}, ""},
		"nested read-only":            {[]string{cache + "/a"}, outside},
		"two owners":                  {[]string{repo + "/a", deep + "/b"}, outside},
		"a read-only mount":           {[]string{notes + "/n"}, outside},
		"no mount":                    {[]string{"/etc/passwd"}, outside},
		"the output tree":             {[]string{sandbox.OutputPath + "/a"}, outside},
		"the mount itself":            {[]string{repo}, outside},
		"no current mount":            {[]string{"/workspace/old/a"}, outside},
		"ancestor":                    {[]string{repo + "/a", repo + "/a/b"}, "ancestor_conflict"},
		"ancestor with names between": {[]string{repo + "/a", repo + "/a-b", repo + "/a/b"}, "ancestor_conflict"},
		"twice":                       {[]string{repo + "/a", repo + "/a"}, "ancestor_conflict"},
		"a prefix is no ancestor":     {[]string{repo + "/a", repo + "/ab"}, ""},
		"none":                        {nil, "invalid_request"},
		"dots":                        {[]string{repo + "/../x"}, "invalid_request"},
		"1025":                        {many(1025), "invalid_request"},
		"1024":                        {many(1024), ""},
	} {
		b := newBench(t)
		q := request(b.fake, durable)
		q.Mounts = append(q.Mounts, sandbox.Mount{MountPath: deep, Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory})
		if err := b.runtime.Adopt(q, "i", sandbox.StateActive); err != nil {
			t.Fatal(err)
		}
		_, err := b.runtime.BeginActiveWrite(b.ctx, "i", c.targets)
		if c.reason == "" && err != nil || c.reason != "" && !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpBeginActiveWrite, Reason: c.reason}) {
			t.Error(name, err)
		}
		if called := b.called(sandbox.OpBeginActiveWrite) == 1; called != (c.reason == "") {
			t.Error(name, "provider called:", called)
		}
	}
}

func many(n int) (targets []string) {
	for i := range n {
		targets = append(targets, fmt.Sprintf("%s/f%d", repo, i))
	}
	return targets
}

func (b *bench) begin(targets ...string) (sandbox.ActiveWrite, *fakeWrite) {
	b.Helper()
	w, err := b.runtime.BeginActiveWrite(b.ctx, b.staged(), targets)
	if err != nil {
		b.Fatal(err)
	}
	return w, b.fake.writes[0]
}

// TestBeginActiveWrite_OwnershipHandoff: caller-owned and abortable until the
// marker, indeterminate after it.
func TestBeginActiveWrite_OwnershipHandoff(t *testing.T) {
	t.Run("abort while open", func(t *testing.T) {
		b := newBench(t)
		w, f := b.begin(repo + "/a")
		if err := errors.Join(w.Abort(b.ctx), w.Abort(b.ctx)); err != nil || f.aborts != 2 {
			t.Error(err)
		}
	})
	t.Run("after dispatch", func(t *testing.T) {
		b := newBench(t)
		w, f := b.begin(repo + "/a")
		if err := w.Dispatch(b.ctx, nil); err != nil {
			t.Fatal(err)
		}
		want := sandbox.Conflict(sandbox.OpBeginActiveWrite, "open", "dispatched")
		for _, err := range []error{w.Abort(b.ctx), w.Stage(b.ctx, sandbox.FileWrite{Path: repo + "/a"}), w.Dispatch(b.ctx, nil)} {
			if !errors.Is(err, want) {
				t.Error(err)
			}
		}
		if f.aborts != 0 {
			t.Error("a dispatched journal was aborted")
		}
	})
	t.Run("interrupted before the marker", func(t *testing.T) {
		b := newBench(t)
		w, f := b.begin(repo + "/a")
		f.marks = 0
		ctx, cancel := context.WithCancel(b.ctx)
		f.after = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
		if err := w.Dispatch(ctx, func() { t.Error("marked") }); err != context.Canceled {
			t.Error(err)
		}
		if err := w.Abort(b.ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("interrupted after the marker", func(t *testing.T) {
		b := newBench(t)
		w, f := b.begin(repo + "/a")
		ctx, cancel := context.WithCancel(b.ctx)
		f.after = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
		marks := 0
		err := w.Dispatch(ctx, func() { marks++ })
		if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonIndeterminate}) || marks != 1 {
			t.Error(err, marks)
		}
		if state, err := w.Inspect(b.ctx); err != nil || state != sandbox.JournalDispatched {
			t.Error(state, err)
		}
	})
	for _, marks := range []int{0, 2} {
		t.Run(fmt.Sprint(marks, " marks"), func(t *testing.T) {
			b := newBench(t)
			w, f := b.begin(repo + "/a")
			f.marks = marks
			heard := 0
			err := w.Dispatch(b.ctx, func() { heard++ })
			wantField(t, err, sandbox.OpBeginActiveWrite, "marker")
			if heard > 1 {
				t.Error("the caller was told twice")
			}
			if err := w.Abort(b.ctx); err == nil {
				t.Error("what was published can be aborted")
			}
		})
	}
	t.Run("interrupted while beginning", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		ctx, cancel := context.WithCancel(b.ctx)
		b.fake.on[sandbox.OpBeginActiveWrite] = func(context.Context) error { cancel(); return nil }
		if _, err := b.runtime.BeginActiveWrite(ctx, id, []string{repo + "/a"}); err != context.Canceled || b.fake.writes[0].aborts != 1 {
			t.Error(err)
		}
	})
	t.Run("late", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		ctx, cancel := context.WithCancel(b.ctx)
		let := make(chan struct{})
		b.fake.on[sandbox.OpBeginActiveWrite] = func(context.Context) error { <-let; return nil }
		failed := make(chan error, 1)
		go func() { _, err := b.runtime.BeginActiveWrite(ctx, id, []string{repo + "/a"}); failed <- err }()
		cancel()
		b.await(1)
		b.clock.Advance(30 * time.Second)
		<-failed
		close(let)
		// The instance is busy until the late transaction was aborted.
		b.eventually(func() bool {
			_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
			return err == nil
		})
		if b.fake.writes[0].aborts != 1 {
			t.Error("was not aborted")
		}
	})
	t.Run("no transaction", func(t *testing.T) {
		b := newBench(t)
		id := b.activate(durable)
		b.fake.lieWrite = func(*fakeWrite) sandbox.ActiveWrite { return nil }
		_, err := b.runtime.BeginActiveWrite(b.ctx, id, []string{repo + "/a"})
		wantField(t, err, sandbox.OpBeginActiveWrite, "transaction")
	})
	t.Run("journal of no state", func(t *testing.T) {
		b := newBench(t)
		w, f := b.begin(repo + "/a")
		f.state = "perhaps"
		_, err := w.Inspect(b.ctx)
		wantField(t, err, sandbox.OpBeginActiveWrite, "journal")
	})
}

// TestBeginActiveWrite_StageTakesDeclaredRegularFiles.
func TestBeginActiveWrite_StageTakesDeclaredRegularFiles(t *testing.T) {
	b := newBench(t)
	w, f := b.begin(repo+"/a", repo+"/b")
	for name, c := range map[string]struct {
		write sandbox.FileWrite
		want  error
	}{
		"undeclared": {sandbox.FileWrite{Path: repo + "/c"}, &sandbox.Error{Reason: sandbox.ReasonOutsideRoot}},
		"symlink":    {sandbox.FileWrite{Path: repo + "/a", Symlink: "/etc"}, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}},
		"too large":  {sandbox.FileWrite{Path: repo + "/a", Content: make([]byte, sandbox.MaxFileBytes+1)}, &sandbox.Error{Kind: sandbox.FileTooLarge}},
		"malformed":  {sandbox.FileWrite{Path: "a"}, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}},
	} {
		if err := w.Stage(b.ctx, c.write); !errors.Is(err, c.want) {
			t.Error(name, err)
		}
	}
	if len(f.staged) != 0 {
		t.Error("something was staged")
	}
	if err := w.Stage(b.ctx, sandbox.FileWrite{Path: repo + "/a", Content: make([]byte, sandbox.MaxFileBytes)}); err != nil {
		t.Error(err)
	}
	// A destroyed instance takes no more.
	if err := b.runtime.Destroy(b.ctx, "i1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Stage(b.ctx, sandbox.FileWrite{Path: repo + "/a"}); !errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound}) {
		t.Error(err)
	}
}
