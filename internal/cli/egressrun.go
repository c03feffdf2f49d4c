package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/egress/matrix"
	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// realRuns makes the real Runs of the matrix: those of checkfu run, by the same
// Runner on the same providers, with guards in the lab's networks.
type realRuns struct {
	app   *app
	dir   string // of the state
	store *image.Store
	image string
}

// providersForMatrix gives the matrix the providers of these names. Where no real
// machine can be had it says why, and the matrix skips what needs one. What done
// answers is what could not be taken away again.
func (a *app) providersForMatrix(ctx context.Context, names []string, bar *progress) (list []matrix.Provider, done func() error) {
	runs, done, err := a.realRuns(ctx, bar)
	for _, name := range names {
		p := matrix.Provider{Name: name}
		if err == nil {
			p = runs.provider(ctx, name)
		} else {
			p.Lacks = argument.OneLine(err.Error())
		}
		list = append(list, p)
	}
	return list, done
}

func (a *app) realRuns(ctx context.Context, bar *progress) (_ *realRuns, done func() error, err error) {
	done = func() error { return nil }
	dir, err := a.usableState()
	if err != nil {
		return nil, done, err
	}
	store, err := openStore(dir, bar)
	if err != nil {
		return nil, done, err
	}
	reference, remove, err := harnessImage(ctx, store)
	if err != nil {
		return nil, done, fmt.Errorf("make an image for real Runs: %w", err)
	}
	return &realRuns{app: a, dir: dir, store: store, image: reference}, remove, nil
}

func (r *realRuns) provider(ctx context.Context, name string) matrix.Provider {
	p := matrix.Provider{Name: name, Begin: func(ctx context.Context, q matrix.RunRequest) (matrix.RealRun, error) {
		return r.begin(ctx, name, q)
	}}
	opened, err := all.Open(name, all.Options{Dir: r.dir, Images: r.store})
	if err != nil {
		p.Lacks = argument.OneLine(err.Error())
		return p
	}
	p.Target = opened.Envelope.Target()
	if lacks := opened.Host.Lacks(ctx); len(lacks) > 0 {
		p.Lacks = lacks[0].What + ": " + lacks[0].Remedy
	} else if err := all.Allowlist(); err != nil {
		p.Lacks = err.Error()
	}
	if err := opened.Close(); err != nil {
		r.app.complain(err)
	}
	return p
}

// realRun is one under way.
type realRun struct {
	provider sandbox.Provider
	input    *io.PipeWriter
	output   *io.PipeReader
	errors   bytes.Buffer // read once it has ended
	ended    chan struct{}
	record   *runner.Record // once ended, like err
	err      error
	cancel   context.CancelFunc
}

// The machine of a real Run is small, and its harness cannot live for long.
const (
	harnessMemory  = 1 << 30
	harnessDisk    = 64 << 20
	harnessTimeout = 5 * time.Minute
)

func (r *realRuns) begin(ctx context.Context, name string, q matrix.RunRequest) (matrix.RealRun, error) {
	run := &realRun{ended: make(chan struct{})}
	start := func(s matrix.Start) native.StartAttendant {
		return func(ctx context.Context, config []byte, listener, log *os.File) (native.Attendant, error) {
			return s(ctx, config, listener, log)
		}
	}
	opened, err := all.Open(name, all.Options{
		Dir: r.dir, Images: r.store, Egress: native.Egress{Resolver: q.Resolver, Start: start(q.Guard)}, Relay: start(q.Relay),
		Model: func(_ context.Context, p sandbox.ProvisionRequest) (*native.Lease, error) {
			token, err := q.Lease(matrix.RunRecord{RunID: p.RunID, LeaseID: p.LeaseID, LeaseEpoch: p.LeaseEpoch})
			return &native.Lease{Gateway: q.Gateway, Token: token, End: func(context.Context) {}}, err
		},
	})
	if err != nil {
		return nil, err
	}
	fromUs, input := io.Pipe()
	output, toUs := io.Pipe()
	run.provider, run.input, run.output = opened.Provider, input, output
	spec := runner.Spec{
		RunID: runner.NewRunID(), Image: r.image, Timeout: harnessTimeout,
		Network:   sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: q.Destinations},
		Resources: sandbox.Resources{CPUMillis: 1000, MemoryBytes: harnessMemory, DiskBytes: harnessDisk, MaxProcesses: 64},
		Command:   []string{matrix.HarnessPath}, Environment: q.Environment,
		Input: fromUs, Output: toUs, Errors: &run.errors,
	}
	scratch, err := makeScratch(r.dir, spec.RunID)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	spec.TempDir = scratch.dir
	does := &runner.Runner{
		Adapters: []sandboxruntime.Adapter{{Provider: opened.Provider}}, Target: opened.Envelope.Target(),
		Platform: sandbox.Platform{OS: "linux", Architecture: runtime.GOARCH}, Versions: versions(),
		Report: func(err error) { r.app.complain(err) },
	}
	ctx, run.cancel = context.WithCancel(ctx)
	go func() {
		defer close(run.ended)
		run.record, run.err = does.Run(ctx, spec)
		run.err = errors.Join(run.err, scratch.remove(), opened.Close())
		// Whoever still reads or writes learns that there is nobody.
		toUs.CloseWithError(io.EOF)
		fromUs.CloseWithError(io.ErrClosedPipe)
	}()
	return run, nil
}

// Read reads what the harness says.
func (r *realRun) Read(p []byte) (int, error) { return r.output.Read(p) }

// Write tells the harness something.
func (r *realRun) Write(p []byte) (int, error) { return r.input.Write(p) }

// Execute runs a command beside the harness.
func (r *realRun) Execute(ctx context.Context, id sandbox.InstanceID, command ...string) ([]byte, error) {
	settled, err := r.provider.Execute(ctx, id, sandbox.Command{
		Executable: command[0], Arguments: command[1:], WorkingDirectory: "/", Environment: map[string]string{},
		TimeoutSeconds: 60, OutputLimitBytes: 1 << 20,
	})
	if err == nil && exitOf(settled.Exit) != 0 {
		err = fmt.Errorf("%s: expected it to end with 0, got %+v: %s", strings.Join(command, " "), settled.Exit, settled.Stderr)
	}
	return settled.Stdout, err
}

// harnessEnd is how long a Run may take to end whose harness has nothing to do.
const harnessEnd = time.Minute

// End ends the harness and waits for the end of the Run.
func (r *realRun) End(ctx context.Context) error {
	r.input.Close()
	go io.Copy(io.Discard, r.output) // what nobody asked for must not hold it
	timer := time.NewTimer(harnessEnd)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	r.cancel()
	<-r.ended // its own bounds hold
	err := r.err
	if err == nil && (r.record.Cause != runner.CauseExited || exitOf(r.record.Exit) != 0 || r.record.Disposition != sandbox.DispositionDestroyed) {
		err = fmt.Errorf("the Run: expected it to end with 0 and its machine to be destroyed, got %s %+v %s: %s",
			r.record.Cause, r.record.Exit, r.record.Disposition, r.errors.String())
	}
	return err
}
