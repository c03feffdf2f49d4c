package sandboxtest

import (
	"context"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// oddIDs names instances and snapshots by all characters that an id may have,
// up to the length that it may have.
func oddIDs(p sandbox.Provider, _ *Env) sandbox.Provider {
	const odd = "!#$%&()*+,-./0:;<=>?@A[]^_`a{|}~%00%2e%2e/../"
	out := func(id string) string {
		if id == "" {
			return ""
		}
		return odd + id + strings.Repeat("z", max(0, sandbox.MaxIdentityBytes-len(odd)-len(id)))
	}
	in := func(id string) string {
		if rest, ok := strings.CutPrefix(id, odd); ok {
			return strings.TrimRight(rest, "z")
		}
		return id
	}
	return translated(p, translation{in: in, out: out, errs: func(err error) error {
		e, ok := err.(*sandbox.Error)
		if !ok || e.ID == "" {
			return err
		}
		renamed := *e
		renamed.ID = out(in(e.ID))
		return &renamed
	}})
}

// translation is how a provider's ids and errors are spelled to the outside; a
// nil function leaves them.
type translation struct {
	in, out func(id string) string
	errs    func(err error) error
}

func (t translation) err(err error) error {
	if err == nil || t.errs == nil {
		return err
	}
	return t.errs(err)
}

func (t translation) inner(id sandbox.InstanceID) sandbox.InstanceID {
	if t.in == nil {
		return id
	}
	return sandbox.InstanceID(t.in(string(id)))
}

func (t translation) outer(id sandbox.InstanceID) sandbox.InstanceID {
	if t.out == nil {
		return id
	}
	return sandbox.InstanceID(t.out(string(id)))
}

func (t translation) innerSnapshot(s sandbox.Snapshot) sandbox.Snapshot {
	s.SnapshotID, s.SourceInstanceID = sandbox.SnapshotID(t.inner(sandbox.InstanceID(s.SnapshotID))), t.inner(s.SourceInstanceID)
	return s
}

func (t translation) outerSnapshot(s sandbox.Snapshot) sandbox.Snapshot {
	s.SnapshotID, s.SourceInstanceID = sandbox.SnapshotID(t.outer(sandbox.InstanceID(s.SnapshotID))), t.outer(s.SourceInstanceID)
	return s
}

func (t translation) instance(h sandbox.Handoff[sandbox.Instance], err error) (sandbox.Handoff[sandbox.Instance], error) {
	h.Value.InstanceID = t.outer(h.Value.InstanceID)
	return h, t.err(err)
}

func (t translation) snapshot(h sandbox.Handoff[sandbox.Snapshot], err error) (sandbox.Handoff[sandbox.Snapshot], error) {
	h.Value = t.outerSnapshot(h.Value)
	return h, t.err(err)
}

// translated is p with every id and every error spelled anew.
func translated(p sandbox.Provider, t translation) sandbox.Provider {
	return Override{
		Provider: p,
		ProvisionFunc: func(ctx context.Context, q sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
			return t.instance(p.Provision(ctx, q))
		},
		WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
			return t.err(p.WriteFile(ctx, t.inner(id), w))
		},
		ActivateFunc: func(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
			return t.instance(p.Activate(ctx, t.inner(id)))
		},
		ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
			s, err := p.Execute(ctx, t.inner(id), c)
			return s, t.err(err)
		},
		ReadFileFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.FileRead) ([]byte, error) {
			b, err := p.ReadFile(ctx, t.inner(id), q)
			return b, t.err(err)
		},
		SnapshotFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.SnapshotRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			return t.snapshot(p.Snapshot(ctx, t.inner(id), q))
		},
		CloneSnapshotFunc: func(ctx context.Context, q sandbox.CloneRequest) (sandbox.Handoff[sandbox.Snapshot], error) {
			q.Snapshot = t.innerSnapshot(q.Snapshot)
			return t.snapshot(p.CloneSnapshot(ctx, q))
		},
		ReleaseFunc: func(ctx context.Context, id sandbox.InstanceID, q sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
			h, err := p.Release(ctx, t.inner(id), q)
			if h.Value.Snapshot != nil {
				s := t.outerSnapshot(*h.Value.Snapshot)
				h.Value.Snapshot = &s
			}
			return h, t.err(err)
		},
		ResumeFunc: func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
			q.Snapshot = t.innerSnapshot(q.Snapshot)
			return t.instance(p.Resume(ctx, q))
		},
		DestroyFunc: func(ctx context.Context, id sandbox.InstanceID) error { return t.err(p.Destroy(ctx, t.inner(id))) },
		DestroySnapshotFunc: func(ctx context.Context, id sandbox.SnapshotID) error {
			return t.err(p.DestroySnapshot(ctx, sandbox.SnapshotID(t.inner(sandbox.InstanceID(id)))))
		},
		CleanupFunc: func(ctx context.Context, q sandbox.CleanupRequest) (sandbox.Swept, error) {
			var pins []sandbox.SnapshotID // absent stays absent
			for _, id := range q.PinnedSnapshots {
				pins = append(pins, sandbox.SnapshotID(t.inner(sandbox.InstanceID(id))))
			}
			q.PinnedSnapshots = pins
			swept, err := p.Cleanup(ctx, q)
			for i, id := range swept.InstanceIDs {
				swept.InstanceIDs[i] = t.outer(id)
			}
			for i, id := range swept.SnapshotIDs {
				swept.SnapshotIDs[i] = sandbox.SnapshotID(t.outer(sandbox.InstanceID(id)))
			}
			return swept, t.err(err)
		},
		Members: func(o *sandbox.Optional) { t.members(o) },
	}
}

func (t translation) members(o *sandbox.Optional) {
	m := *o
	o.ReadFiles = ReadFilesFunc(func(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
		got, err := m.ReadFiles.ReadFiles(ctx, t.inner(id), q)
		return got, t.err(err)
	})
	o.ListDir = ListDirFunc(func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
		got, err := m.ListDir.ListDir(ctx, t.inner(id), l)
		return got, t.err(err)
	})
	o.ListProjectDir = ListProjectDirFunc(func(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
		got, err := m.ListProjectDir.ListProjectDir(ctx, t.inner(id), l)
		return got, t.err(err)
	})
	o.OpenProcess = OpenProcessFunc(func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
		live, err := m.OpenProcess.OpenProcess(ctx, t.inner(id), processID, q)
		if err != nil {
			return nil, t.err(err)
		}
		e := live.Evidence()
		e.InstanceID = t.outer(e.InstanceID)
		return stating{live, e}, nil
	})
	o.ActiveWrite = BeginActiveWriteFunc(func(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
		got, err := m.ActiveWrite.BeginActiveWrite(ctx, t.inner(id), targets)
		return got, t.err(err)
	})
	// What is absent stays absent.
	if m.ReadFiles == nil {
		o.ReadFiles = nil
	}
	if m.ListDir == nil {
		o.ListDir = nil
	}
	if m.ListProjectDir == nil {
		o.ListProjectDir = nil
	}
	if m.OpenProcess == nil {
		o.OpenProcess = nil
	}
	if m.ActiveWrite == nil {
		o.ActiveWrite = nil
	}
}
