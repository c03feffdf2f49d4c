package probe

import (
	"context"
	"io"
	"slices"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// Optional wraps what is there and leaves absent what is absent.
func (s seam) Optional() sandbox.Optional {
	var o sandbox.Optional
	of := s.t.run.optional
	if of.ReadFiles != nil {
		o.ReadFiles = s
	}
	if of.ListDir != nil {
		o.ListDir = s
	}
	if of.ListProjectDir != nil {
		o.ListProjectDir = s
	}
	if of.OpenProcess != nil {
		o.OpenProcess = s
	}
	if of.ActiveWrite != nil {
		o.ActiveWrite = s
	}
	return o
}

func (s seam) ReadFiles(ctx context.Context, id sandbox.InstanceID, q sandbox.FilesRead) ([]sandbox.FileResult, error) {
	r := s.t.run
	got, err := through(ctx, s.t, asked{op: sandbox.OpReadFiles, id: string(id), request: q}, func(got []sandbox.FileResult) any { return counted{int64(len(got))} },
		func(ctx context.Context) ([]sandbox.FileResult, error) {
			return r.optional.ReadFiles.ReadFiles(ctx, id, q)
		})
	if err != nil {
		return nil, err
	}
	r.held(standReadFiles)
	if len(got) != len(q.Files) {
		r.broke(standReadFiles, "count", "files", "one result for each file", "another number")
		return got, nil
	}
	var sum int64
	for i, f := range got {
		r.valid(standReadFiles, f.Validate(q.Files[i]))
		sum += int64(len(f.Content))
	}
	if sum > q.AggregateMaximumBytes {
		r.broke(standReadFiles, "aggregate", "files", "at most aggregate_maximum_bytes", "more")
	}
	return got, nil
}

func (s seam) ListDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) ([]sandbox.DirEntry, error) {
	got, err := through(ctx, s.t, asked{op: sandbox.OpListDir, id: string(id), request: l}, func(got []sandbox.DirEntry) any { return counted{int64(len(got))} },
		func(ctx context.Context) ([]sandbox.DirEntry, error) {
			return s.t.run.optional.ListDir.ListDir(ctx, id, l)
		})
	if err == nil {
		s.t.run.valid(standListDir, sandbox.ValidateEntries(got, l.MaxEntries))
	}
	return got, err
}

func (s seam) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	got, err := through(ctx, s.t, asked{op: sandbox.OpListProjectDir, id: string(id), request: l}, func(got sandbox.ProjectListing) any { return counted{int64(len(got.Leaves))} },
		func(ctx context.Context) (sandbox.ProjectListing, error) {
			return s.t.run.optional.ListProjectDir.ListProjectDir(ctx, id, l)
		})
	if err == nil {
		s.t.run.valid(standProject, got.Validate(l.MaxEntries))
	}
	return got, err
}

func (s seam) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
	r := s.t.run
	p, err := through(ctx, s.t, asked{op: sandbox.OpOpenProcess, id: string(id), request: q}, nil, func(ctx context.Context) (sandbox.Process, error) {
		return r.optional.OpenProcess.OpenProcess(ctx, id, processID, q)
	})
	if err != nil {
		return nil, err
	}
	r.held(standEvidence)
	if p == nil {
		r.broke(standEvidence, "process", "process", "a live process", "none")
		return nil, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, nil)
	}
	live, err := bounded(ctx, r.within(ctx, r.o.Patience), func(context.Context) (process, error) {
		return process{s.t, p, p.Input(), p.Output(), p.Error(), p.Evidence()}, nil
	}, nil)
	r.judge(sandbox.OpOpenProcess, err, ctx.Err() != nil)
	if err != nil {
		if Hung(err) {
			r.stick(string(sandbox.OpOpenProcess) + ", called by " + s.t.probe.ID)
		}
		return nil, err
	}
	if request, ours := r.ledger.asked(id); ours {
		subject := crosscheck.Subject{
			Instance:  sandbox.InstanceOf(request, id, sandbox.StateActive, sandbox.Digest(canonical.Digest(request.Profile.ImageIdentity()))),
			ProcessID: processID, Advertised: r.envelope.Enforcement,
		}
		r.differ(standEvidence, "evidence.", crosscheck.Evidence(&subject, &live.evidence))
	}
	return live, nil
}

// process is a live process whose waits are bounded by the caller's context
// and whose exit is checked. What it only has is asked for once, when it is
// opened.
type process struct {
	t        *T
	p        sandbox.Process
	input    io.WriteCloser
	output   io.Reader
	err      io.Reader
	evidence sandbox.Evidence
}

func (p process) Input() io.WriteCloser      { return p.input }
func (p process) Output() io.Reader          { return p.output }
func (p process) Error() io.Reader           { return p.err }
func (p process) Evidence() sandbox.Evidence { return p.evidence }

func (p process) Wait(ctx context.Context) (sandbox.Exit, error) {
	exit, err := bounded(ctx, p.t.run.within(ctx, p.t.run.o.Patience), p.p.Wait, nil)
	p.t.run.judge(sandbox.OpOpenProcess, err, ctx.Err() != nil)
	if Hung(err) {
		p.t.run.stick("wait, called by " + p.t.probe.ID)
	}
	if err == nil {
		p.t.run.valid(standExit, exit.Validate())
	}
	return exit, err
}

func (p process) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	return only(ctx, p.t, asked{op: sandbox.OpOpenProcess, id: string(s)}, func(ctx context.Context) error { return p.p.Signal(ctx, s) })
}

func (p process) Destroy(ctx context.Context) error {
	return only(ctx, p.t, asked{op: sandbox.OpOpenProcess, id: "destroy", limit: rollbackLimit}, p.p.Destroy)
}

func (s seam) BeginActiveWrite(ctx context.Context, id sandbox.InstanceID, targets []string) (sandbox.ActiveWrite, error) {
	w, err := through(ctx, s.t, asked{op: sandbox.OpBeginActiveWrite, id: string(id)}, nil, func(ctx context.Context) (sandbox.ActiveWrite, error) {
		return s.t.run.optional.ActiveWrite.BeginActiveWrite(ctx, id, slices.Clone(targets))
	})
	if err != nil {
		return nil, err
	}
	if w == nil {
		s.t.run.broke(standErrors, "transaction", "begin_active_write", "a transaction", "none")
		return nil, sandbox.Failed(sandbox.OpBeginActiveWrite, sandbox.ReasonProviderError, nil)
	}
	return activeWrite{s.t, w}, nil
}

type activeWrite struct {
	t *T
	w sandbox.ActiveWrite
}

func (w activeWrite) Stage(ctx context.Context, f sandbox.FileWrite) error {
	return only(ctx, w.t, asked{op: sandbox.OpBeginActiveWrite, id: "stage", request: f}, func(ctx context.Context) error { return w.w.Stage(ctx, f) })
}

func (w activeWrite) Dispatch(ctx context.Context, marker func()) error {
	return only(ctx, w.t, asked{op: sandbox.OpBeginActiveWrite, id: "dispatch"}, func(ctx context.Context) error { return w.w.Dispatch(ctx, marker) })
}

func (w activeWrite) Abort(ctx context.Context) error {
	return only(ctx, w.t, asked{op: sandbox.OpBeginActiveWrite, id: "abort"}, w.w.Abort)
}

func (w activeWrite) Inspect(ctx context.Context) (sandbox.JournalState, error) {
	return through(ctx, w.t, asked{op: sandbox.OpBeginActiveWrite, id: "inspect"}, nil, w.w.Inspect)
}

// What the transcript says of results whose bytes stay out of it.
type (
	counted struct {
		Entries int64 `json:"entries"`
	}
	measured struct {
		Bytes  int64  `json:"bytes"`
		Digest string `json:"sha256"`
	}
	settlement struct {
		Exit     sandbox.Exit `json:"exit"`
		TimedOut bool         `json:"timed_out"`
		Stdout   measured     `json:"stdout"`
		Stderr   measured     `json:"stderr"`
	}
)

func sized(b []byte) any { return measured{int64(len(b)), canonical.Digest(b)} }

func settled(s sandbox.Settlement) any {
	return settlement{s.Exit, s.TimedOut, sized(s.Stdout).(measured), sized(s.Stderr).(measured)}
}

// copyRequest keeps what is compared with out of the target's reach.
func copyRequest(q sandbox.ProvisionRequest) sandbox.ProvisionRequest {
	q.Mounts = slices.Clone(q.Mounts)
	q.Profile.Packages = slices.Clone(q.Profile.Packages)
	q.Profile.NetworkPolicy.Destinations = slices.Clone(q.Profile.NetworkPolicy.Destinations)
	return q
}
