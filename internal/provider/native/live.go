package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// Live state is beyond the contract: a snapshot has, beside the files of a home, the
// memory and the processes of its machine, of the same moment. Only a driver that is a
// machine.Restorer has it, only a durable instance of a Provider with Options.Live, and
// only where somebody asks for it (ReleaseLive). For everyone else, such a snapshot is
// one of files.
//
// What is kept is data that the sentry parses when it goes on, written by a sentry that
// a hostile guest may have had in its hands. It never leaves this provider's store,
// nothing is taken in from elsewhere, and it goes on behind the same walls: a sentry's
// own user namespace, cgroup and seccomp filter are made before it reads a byte.
// Source: design 3, point 10 ("Memory").

// Reasons of a refusal, beside those of the contract. The text after the prefix is a
// machine.Cause.
const (
	// ReasonLive begins the reason why a machine was not written down. It runs on.
	ReasonLive = "live_"
	// ReasonLiveElsewhere says that a checkpoint is of another binary, runtime or
	// processor. Its files can be resumed alone (Options.Cold).
	ReasonLiveElsewhere = "live_elsewhere"
)

// generationFile is where a live machine finds which one it is.
const generationFile = "generation"

// lives reports whether the machine of an instance can be written down.
func (in *instance) lives() bool {
	_, able := in.p.opt.Driver.(machine.Restorer)
	return able && in.p.opt.Live && in.durable()
}

// goesOn reports whether a resumption takes the processes of a snapshot too.
func (p *Provider) goesOn(h *snapshot.Hold) bool {
	_, able := p.opt.Driver.(machine.Restorer)
	return able && p.opt.Live && !p.opt.Cold && h.Manifest.Live != nil
}

// ReleaseLive is Release of an instance whose processes are to go on when it is
// resumed. Nothing is asked to end.
// Errors: those of Release; OperationFailed with ReasonLive and a machine.Cause, after
// which the instance is active as before.
func (p *Provider) ReleaseLive(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error) {
	return p.release(ctx, id, r, true)
}

// writeDown makes a checkpoint of a machine that is at rest.
func (in *instance) writeDown(ctx context.Context, op sandbox.Operation) (*snapshot.LiveSource, error) {
	in.mu.Lock()
	m := in.machine
	in.mu.Unlock()
	able, ok := m.(machine.Checkpointer)
	if !ok || !in.lives() {
		return nil, refusedLive(op, &machine.CheckpointError{Cause: machine.CauseNotLive, Err: fmt.Errorf("driver %s", in.p.opt.Driver.Name())})
	}
	identity, err := in.p.identity()
	if err != nil {
		return nil, sandbox.Failed(op, sandbox.ReasonProviderError, err)
	}
	dir := filepath.Join(in.at.machine(), "checkpoint")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, sandbox.Failed(op, sandbox.ReasonProviderError, err)
	}
	if err := roomFor(ctx, m, in.spec().Limits, dir); err != nil {
		return nil, errors.Join(refusedLive(op, err), os.RemoveAll(dir))
	}
	in.p.opt.Step("checkpoint begun")
	if err := able.Checkpoint(ctx, dir); err != nil {
		return nil, errors.Join(refusedLive(op, err), os.RemoveAll(dir))
	}
	in.p.opt.Step("checkpoint")
	return &snapshot.LiveSource{Identity: identity, Dir: dir}, nil
}

// spare is what a checkpoint leaves free of the host's disk.
const spare = 256 << 20

// roomFor refuses a checkpoint for which the disk may have no room. It may not fill
// it: the homes of durable machines lie there too, and one that lost a write can never
// be kept again.
func roomFor(ctx context.Context, m machine.Machine, limits machine.Limits, dir string) error {
	seen, err := m.Observe(ctx)
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := volume.Room(d, memoryOf(seen, limits)+spare); err != nil {
		return &machine.CheckpointError{Cause: machine.CauseDisk, Err: err}
	}
	return nil
}

func refusedLive(op sandbox.Operation, err error) error {
	if e, ok := errors.AsType[*machine.CheckpointError](err); ok {
		return sandbox.Failed(op, ReasonLive+string(e.Cause), err)
	}
	return sandbox.Failed(op, sandbox.ReasonProviderError, err)
}

// identity is what checkpoints are bound to here, as a manifest has it.
func (p *Provider) identity() (string, error) {
	id, err := p.opt.Driver.(machine.Restorer).Identity()
	if err != nil {
		return "", err
	}
	body, err := canonical.Encode(id)
	return string(body), err
}

// checkpointOf is the directory of a checkpoint that is whole, and of here. It is
// looked at beside what else is made of a snapshot.
// Errors: OperationFailed with ReasonLiveElsewhere; snapshot.ErrDamaged.
func (p *Provider) checkpointOf(ctx context.Context, h *snapshot.Hold) (string, error) {
	var theirs machine.Identity
	if err := canonical.Decode([]byte(h.Manifest.Live.Identity), &theirs); err != nil {
		return "", sandbox.Failed(sandbox.OpResume, ReasonLiveElsewhere, err)
	}
	ours, err := p.opt.Driver.(machine.Restorer).Identity()
	if err != nil {
		return "", sandbox.Failed(sandbox.OpResume, sandbox.ReasonProviderError, err)
	}
	if field, here, there := ours.Differ(theirs); field != "" {
		return "", sandbox.Failed(sandbox.OpResume, ReasonLiveElsewhere,
			fmt.Errorf("its memory was written down by another %s: expected %s, got %s; its files alone can be resumed (--cold)", field, here, there))
	}
	return h.VerifyLive(ctx)
}

// bringUp starts the machine, or lets one go on that was written down.
func (in *instance) bringUp(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	if spec.Live = in.lives(); spec.Live {
		in.tellGeneration(ctx)
	}
	if in.checkpoint == "" {
		return in.p.opt.Driver.Start(ctx, spec)
	}
	return in.p.opt.Driver.(machine.Restorer).Restore(ctx, spec, in.checkpoint)
}

// tellGeneration writes down in the machine which one it is, before it runs. A program
// that goes on in several machines sees there that it is another one than it was, and
// can seed anew what it drew from the kernel before.
//
// It is the workload's directory: it can put something else there, which a process may
// hold, and take all room on the disk. Then it is not told. A session is not lost for
// that.
func (in *instance) tellGeneration(ctx context.Context) {
	_ = in.roots[sandbox.ControlRoot].WriteFile(ctx, generationFile, []byte(in.id+"\n"), 0o644)
}
