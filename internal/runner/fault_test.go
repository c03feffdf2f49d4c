package runner

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/sandbox"
)

// errWait makes a saboteur wait until its caller gives up.
var errWait = errors.New("wait")

// saboteur fails single members of a provider before they do anything.
type saboteur struct {
	sandbox.Provider
	before func(op sandbox.Operation) error
}

func (s *saboteur) fail(ctx context.Context, op sandbox.Operation) error {
	err := s.before(op)
	if err == errWait {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *saboteur) Provision(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
	if err := s.fail(ctx, sandbox.OpProvision); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return s.Provider.Provision(ctx, r)
}

func (s *saboteur) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	if err := s.fail(ctx, sandbox.OpWriteFile); err != nil {
		return err
	}
	return s.Provider.WriteFile(ctx, id, w)
}

func (s *saboteur) Activate(ctx context.Context, id sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
	if err := s.fail(ctx, sandbox.OpActivate); err != nil {
		return sandbox.Handoff[sandbox.Instance]{}, err
	}
	return s.Provider.Activate(ctx, id)
}

func (s *saboteur) Release(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	if err := s.fail(ctx, sandbox.OpRelease); err != nil {
		return sandbox.Handoff[sandbox.Released]{}, err
	}
	return s.Provider.Release(ctx, id, r)
}

func (s *saboteur) Destroy(ctx context.Context, id sandbox.InstanceID) error {
	if err := s.fail(ctx, sandbox.OpDestroy); err != nil {
		return err
	}
	return s.Provider.Destroy(ctx, id)
}

// Optional hands out the optional members, sabotaged.
func (s *saboteur) Optional() sandbox.Optional {
	o := s.Provider.Optional()
	return sandbox.Optional{
		ReadFiles:      faultyReader{o.ReadFiles, s},
		ListDir:        o.ListDir,
		ListProjectDir: faultyLister{o.ListProjectDir, s},
		OpenProcess:    faultyOpener{o.OpenProcess, s},
	}
}

type faultyReader struct {
	sandbox.FilesReader
	s *saboteur
}

func (f faultyReader) ReadFiles(ctx context.Context, id sandbox.InstanceID, r sandbox.FilesRead) ([]sandbox.FileResult, error) {
	if err := f.s.fail(ctx, sandbox.OpReadFiles); err != nil {
		return nil, err
	}
	return f.FilesReader.ReadFiles(ctx, id, r)
}

type faultyLister struct {
	sandbox.ProjectLister
	s *saboteur
}

func (f faultyLister) ListProjectDir(ctx context.Context, id sandbox.InstanceID, l sandbox.Listing) (sandbox.ProjectListing, error) {
	if err := f.s.fail(ctx, sandbox.OpListProjectDir); err != nil {
		return sandbox.ProjectListing{}, err
	}
	return f.ProjectLister.ListProjectDir(ctx, id, l)
}

type faultyOpener struct {
	sandbox.ProcessOpener
	s *saboteur
}

func (f faultyOpener) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	if err := f.s.fail(ctx, sandbox.OpOpenProcess); err != nil {
		return nil, err
	}
	return f.ProcessOpener.OpenProcess(ctx, id, processID, r)
}

func TestAFailureAtAnyStepLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		op    sandbox.Operation
		phase Phase // "" where the Run succeeds all the same
	}{
		{sandbox.OpProvision, PhaseProvision},
		{sandbox.OpWriteFile, PhaseStage},
		{sandbox.OpActivate, PhaseActivate},
		{sandbox.OpOpenProcess, PhaseOpen},
		{sandbox.OpListProjectDir, PhaseCollect},
		{sandbox.OpReadFiles, PhaseCollect},
		{sandbox.OpRelease, ""}, // it is destroyed instead, and the record says so
	} {
		t.Run(string(test.op), func(t *testing.T) {
			w := newWorld(t, "echo x > keep.txt; echo x > /mnt/session/outputs/o")
			w.spec.Repo, w.spec.OutDir = &Repo{Dir: repository(t)}, t.TempDir()+"/out"
			w.use(&saboteur{Provider: w.provider, before: func(op sandbox.Operation) error {
				if op == test.op {
					return sandbox.Failed(op, "sabotaged", nil)
				}
				return nil
			}})
			r, err := w.run()
			var failed *Error
			if got := errors.As(err, &failed); got != (test.phase != "") || got && failed.Phase != test.phase {
				t.Fatalf("%v", err)
			}
			if BadInput(err) {
				t.Errorf("a provider's failure was taken for bad input: %v", err)
			}
			if len(r.Failures) == 0 || !strings.Contains(r.Failures[0].Message, "sabotaged") {
				t.Errorf("failures: %+v", r.Failures)
			}
			if want := test.op != sandbox.OpProvision; (r.Disposition == sandbox.DispositionDestroyed) != want {
				t.Errorf("disposition %q", r.Disposition)
			}
			if _, err := r.Encode(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAMachineThatCannotBeEndedIsNamed(t *testing.T) {
	w := newWorld(t, "true")
	w.use(&saboteur{Provider: w.provider, before: func(op sandbox.Operation) error {
		if op == sandbox.OpRelease || op == sandbox.OpDestroy {
			return sandbox.Failed(op, "sabotaged", nil)
		}
		return nil
	}})
	r, err := w.runner.Run(context.Background(), w.spec)
	if err == nil || r.Disposition != "" || !strings.Contains(err.Error(), r.InstanceID) || !strings.Contains(err.Error(), "sweep") {
		t.Errorf("%v", err)
	}
}

func TestBadInputCallsNoMemberThatAllocates(t *testing.T) {
	for name, spoil := range map[string]func(s *Spec){
		"no command":       func(s *Spec) { s.Command = nil },
		"no such repo":     func(s *Spec) { s.Repo = &Repo{Dir: "/does/not/exist"} },
		"no such revision": func(s *Spec) { s.Repo.Revision = "no-such-revision" },
		"mount conflict":   func(s *Spec) { s.Mounts = []DirMount{{s.TempDir, RepoPath, sandbox.AccessReadOnly}} },
		"reserved mount":   func(s *Spec) { s.Mounts = []DirMount{{s.TempDir, "/workspace", sandbox.AccessReadOnly}} },
		"no such source":   func(s *Spec) { s.Mounts = []DirMount{{"/does/not/exist", "/data", sandbox.AccessReadOnly}} },
		"zero timeout":     func(s *Spec) { s.Timeout = 0 },
		"endless timeout":  func(s *Spec) { s.Timeout = 1<<63 - 1 },
		"negative memory":  func(s *Spec) { s.Resources.MemoryBytes = -1 },
		"too much memory":  func(s *Spec) { s.Resources.MemoryBytes = sandbox.MaxInteger },
		"too little disk":  func(s *Spec) { s.Resources.DiskBytes = 1 },
		"no digest":        func(s *Spec) { s.Image = "base" },
		"bad environment":  func(s *Spec) { s.Environment = map[string]string{"A B": "x"} },
		"relative workdir": func(s *Spec) { s.WorkingDirectory = "here" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "true")
			w.spec.Repo = &Repo{Dir: repository(t)}
			spoil(&w.spec)
			w.use(&saboteur{Provider: w.provider, before: func(op sandbox.Operation) error {
				t.Errorf("%s was called", op)
				return nil
			}})
			if _, err := w.run(); !BadInput(err) {
				t.Errorf("not bad input: %v", err)
			}
		})
	}
}

func TestARunIsBoundByItsContext(t *testing.T) {
	w := newWorld(t, "true")
	w.use(&saboteur{Provider: w.provider, before: func(op sandbox.Operation) error {
		if op == sandbox.OpProvision {
			return errWait
		}
		return nil
	}})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.runner.Run(ctx, w.spec); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	w.nothingLeft()
}

// endless is a process whose standard output never ends, or that no signal
// reaches.
type endless struct {
	sandbox.Process
	deaf bool
	gone chan struct{}
	once sync.Once
}

func (e *endless) Output() io.Reader {
	if e.deaf {
		return e.Process.Output()
	}
	return blocked(e.gone)
}

func (e *endless) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	if e.deaf {
		return nil
	}
	return e.Process.Signal(ctx, s)
}

func (e *endless) Destroy(ctx context.Context) error {
	e.once.Do(func() { close(e.gone) })
	return e.Process.Destroy(ctx)
}

type blocked chan struct{}

func (b blocked) Read([]byte) (int, error) { <-b; return 0, io.EOF }

// opener wraps every process of a provider.
type opener struct {
	sandbox.Provider
	wrap func(sandbox.Process) sandbox.Process
}

func (o opener) Optional() sandbox.Optional {
	all := o.Provider.Optional()
	all.OpenProcess = wrapping{all.OpenProcess, o.wrap}
	return all
}

type wrapping struct {
	sandbox.ProcessOpener
	wrap func(sandbox.Process) sandbox.Process
}

func (w wrapping) OpenProcess(ctx context.Context, id sandbox.InstanceID, processID string, r sandbox.ProcessRequest) (sandbox.Process, error) {
	p, err := w.ProcessOpener.OpenProcess(ctx, id, processID, r)
	if err != nil {
		return nil, err
	}
	return w.wrap(p), nil
}

func TestOutputWithoutEndIsNotWaitedForBeyondTheTimeout(t *testing.T) {
	w := newWorld(t, "exit 0")
	w.spec.Timeout = 300 * time.Millisecond
	w.use(opener{w.provider, func(p sandbox.Process) sandbox.Process {
		return &endless{Process: p, gone: make(chan struct{})}
	}})
	r, err := w.run()
	if err == nil || !strings.Contains(err.Error(), "output did not end") || r.Disposition != sandbox.DispositionDestroyed {
		t.Errorf("%v, %q", err, r.Disposition)
	}
}

func TestAProcessThatNoSignalReachesIsDestroyed(t *testing.T) {
	w := newWorld(t, "echo ready; sleep 1000")
	clock := clocktest.New(time.Now())
	w.runner.Clock = clock
	gone := make(chan struct{})
	w.use(opener{w.provider, func(p sandbox.Process) sandbox.Process {
		go func() { // the timeout, then the wait after SIGKILL
			<-w.out.seen
			for _, d := range []time.Duration{w.spec.Timeout, killBound} {
				if err := clock.AwaitTimers(t.Context(), 1); err != nil {
					t.Error(err)
				}
				clock.Advance(d)
			}
		}()
		return &endless{Process: p, deaf: true, gone: gone}
	}})
	r, err := w.run()
	if err == nil || !strings.Contains(err.Error(), "did not end after SIGKILL") || r.Disposition != sandbox.DispositionDestroyed {
		t.Errorf("%v, %q", err, r.Disposition)
	}
	<-gone
}
