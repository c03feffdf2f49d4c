package sandboxruntime

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/crosscheck"
	"github.com/checkfu/checkfu/sandbox"
)

// OpenProcess starts a long-lived process in an active instance. Its id is
// minted here, so that it can be torn down although a reply was lost. The
// caller owns the process and destroys it; a release of the instance ends it.
//
// ctx bounds the opening only: a provider may tie nothing of the process's
// life to it.
// Errors: LifecycleConflict{open_process_unsupported}, or
// {process_already_open} from the provider, which alone keeps that rule;
// CapabilityUnavailable{network_policy}; ProtocolInvalid{open_process_identity}
// for evidence that does not match or streams that are none, after which the
// process was destroyed under 30 s and a failure of that is joined.
// Source: contract "openProcess".
func (r *Runtime) OpenProcess(ctx context.Context, id sandbox.InstanceID, q sandbox.ProcessRequest) (sandbox.Process, error) {
	return r.openProcess(ctx, id, mintProcessID(), q)
}

func mintProcessID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "pr_" + hex.EncodeToString(b[:])
}

// checkProcessID holds an id to the form that mintProcessID gives it.
func checkProcessID(id string) error {
	digits, ok := strings.CutPrefix(id, "pr_")
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != 16 || strings.ToLower(digits) != digits {
		return &sandbox.Invalid{Field: "process_id", Expected: "pr_ and 32 lower-case hex digits", Got: excerpt(id)}
	}
	return nil
}

func (r *Runtime) openProcess(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
	const op = sandbox.OpOpenProcess
	if r.optional.OpenProcess == nil {
		return nil, sandbox.Conflict(op, string(op), sandbox.ActualOpenProcessUnsupported)
	}
	if err := q.Validate(); err != nil {
		return nil, refused(op, err)
	}
	i, err := r.enter(op, id, active)
	if err != nil {
		return nil, err
	}
	if err := r.runnable(op, i); err != nil {
		i.leave()
		return nil, err
	}
	opened, left, err := do(ctx, r.link, call[sandbox.Process]{
		op: op,
		run: func(ctx context.Context) (sandbox.Process, error) {
			return r.optional.OpenProcess.OpenProcess(ctx, id, processID, q)
		},
		late: func(p sandbox.Process, err error) {
			if err == nil && !isNil(p) {
				r.report(settle(ctx, r.link, op, p.Destroy))
			}
			i.leave()
		},
	})
	if left {
		return nil, err
	}
	defer i.leave()
	if err != nil {
		return nil, err
	}
	if isNil(opened) {
		return nil, protocolInvalid(OpOpenProcessIdentity, "process", "a process", "none")
	}
	p, err := r.inspect(ctx, i, opened, processID)
	if err == nil {
		err = ctx.Err() // interrupted before ownership
	}
	if err == nil {
		err = i.own(p)
	}
	if err != nil {
		return nil, join(err, settle(ctx, r.link, op, opened.Destroy))
	}
	return p, nil
}

// inspect takes the streams and the evidence out of a new process and checks
// them. What it reads once is what is handed up: a provider cannot show one
// thing to the check and another to the caller.
func (r *Runtime) inspect(ctx context.Context, i *instance, opened sandbox.Process, processID string) (*process, error) {
	p := &process{runtime: r, instance: i, inner: opened}
	_, _, err := do(context.WithoutCancel(ctx), r.link, call[none]{op: sandbox.OpOpenProcess, limit: patience, run: func(context.Context) (none, error) {
		p.input, p.output, p.diagnostics, p.evidence = opened.Input(), opened.Output(), opened.Error(), opened.Evidence()
		return none{}, nil
	}})
	if err != nil {
		return nil, err
	}
	switch {
	case isNil(p.input):
		return nil, protocolInvalid(OpOpenProcessIdentity, "input", "a stream", "none")
	case isNil(p.output):
		return nil, protocolInvalid(OpOpenProcessIdentity, "output", "a stream", "none")
	case isNil(p.diagnostics):
		return nil, protocolInvalid(OpOpenProcessIdentity, "error", "a stream", "none")
	}
	s := crosscheck.Subject{Instance: i.value(sandbox.StateActive), ProcessID: processID, Advertised: r.advertised.Enforcement}
	if err := checkEvidence(s, p.evidence); err != nil {
		return nil, err
	}
	// Equal to what was advertised, so it is narrowed where that was.
	p.evidence.Enforcement = r.capabilities.Enforcement
	return p, nil
}

// isNil sees through an interface that holds a nil pointer.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// own takes a process over, unless a destroy of the instance came in between.
func (i *instance) own(p *process) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.is(sandbox.OpOpenProcess, active); err != nil {
		return err
	}
	i.processes[p] = none{}
	return nil
}

// process is a live process that the runtime has accepted. The streams are the
// provider's own, not copied.
type process struct {
	runtime     *Runtime
	instance    *instance
	inner       sandbox.Process
	input       io.WriteCloser
	output      io.Reader
	diagnostics io.Reader
	evidence    sandbox.Evidence

	mu      sync.Mutex
	settled *sandbox.Exit // the first answer of Wait, which is the only one
}

func (p *process) Input() io.WriteCloser      { return p.input }
func (p *process) Output() io.Reader          { return p.output }
func (p *process) Error() io.Reader           { return p.diagnostics }
func (p *process) Evidence() sandbox.Evidence { return p.evidence }

// Wait decodes the exit again when it settles, and keeps it.
// Errors: ctx's; ProtocolInvalid for an exit with two causes or none, or one
// that contradicts the one before.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	const op = sandbox.OpOpenProcess
	if e := p.exit(); e != nil {
		return own(*e), nil
	}
	e, _, err := do(ctx, p.runtime.link, call[sandbox.Exit]{op: op, run: func(ctx context.Context) (sandbox.Exit, error) {
		return p.inner.Wait(ctx)
	}})
	if err != nil {
		return sandbox.Exit{}, err
	}
	e = own(e)
	if err := e.Validate(); err != nil {
		return sandbox.Exit{}, rejected(op, err)
	}
	p.mu.Lock()
	if p.settled == nil {
		p.settled = &e
	}
	first := *p.settled
	p.mu.Unlock()
	p.instance.disown(p)
	if !sameExit(first, e) {
		return sandbox.Exit{}, protocolInvalid(op, "exit", spellExit(first), spellExit(e))
	}
	return own(first), nil
}

func (p *process) exit() *sandbox.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settled
}

// Signal delivers one of the three control signals.
func (p *process) Signal(ctx context.Context, s sandbox.ControlSignal) error {
	const op = sandbox.OpOpenProcess
	if !s.Valid() {
		return refused(op, &sandbox.Invalid{Field: "signal", Expected: "SIGINT, SIGTERM or SIGKILL", Got: excerpt(string(s))})
	}
	_, _, err := do(ctx, p.runtime.link, call[none]{op: op, run: func(ctx context.Context) (none, error) {
		return none{}, p.inner.Signal(ctx, s)
	}})
	return err
}

// Destroy kills the process. It is bounded at 30 s also where ctx is not.
func (p *process) Destroy(ctx context.Context) error {
	_, _, err := do(ctx, p.runtime.link, call[none]{op: sandbox.OpOpenProcess, limit: patience, run: func(ctx context.Context) (none, error) {
		return none{}, p.inner.Destroy(ctx)
	}})
	if err == nil {
		p.instance.disown(p)
	}
	return err
}

func (i *instance) disown(p *process) {
	i.mu.Lock()
	delete(i.processes, p)
	i.mu.Unlock()
}

// endProcesses ends what still lives in an instance that is being released:
// SIGTERM, 5 s, and then force. The instance is in a passing phase, so no
// process is opened meanwhile.
// Source: contract "openProcess", wait.
func (r *Runtime) endProcesses(ctx context.Context, i *instance) error {
	i.mu.Lock()
	living := make([]*process, 0, len(i.processes))
	for p := range i.processes {
		living = append(living, p)
	}
	i.mu.Unlock()
	for _, p := range living {
		if err := r.endProcess(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) endProcess(ctx context.Context, p *process) error {
	const wait = sandbox.ReleaseWaitSeconds * time.Second
	// Whatever fails here leaves the force, which decides.
	graceful, _, _ := do(ctx, r.link, call[bool]{op: sandbox.OpOpenProcess, limit: wait, run: func(ctx context.Context) (bool, error) {
		if err := p.inner.Signal(ctx, sandbox.SignalTerminate); err != nil {
			return false, err
		}
		e, err := p.inner.Wait(ctx)
		return err == nil && own(e).Validate() == nil, err
	}})
	if err := ctx.Err(); err != nil {
		return err
	}
	if graceful {
		p.instance.disown(p)
		return nil
	}
	err := settle(ctx, r.link, sandbox.OpOpenProcess, p.inner.Destroy)
	if err == nil {
		p.instance.disown(p)
	}
	return err
}

func sameExit(a, b sandbox.Exit) bool {
	if a.Signal != b.Signal || (a.ExitCode == nil) != (b.ExitCode == nil) {
		return false
	}
	return a.ExitCode == nil || *a.ExitCode == *b.ExitCode
}

func spellExit(e sandbox.Exit) string {
	if e.ExitCode != nil {
		return "exit_code " + strconv.FormatInt(*e.ExitCode, 10)
	}
	return e.Signal
}
