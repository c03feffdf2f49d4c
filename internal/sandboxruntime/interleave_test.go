package sandboxruntime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// TestLifecycleAndStates_TwoInterleaved is B49: one operation is slow at its provider,
// and each other one is asked of the same instance meanwhile, twice. What may not come
// in between is refused before the provider hears of it, and what ended beside it has
// not given its place away: the second answer is the first. When the slow one has
// ended the instance is where that one left it, and nothing was made twice.
func TestLifecycleAndStates_TwoInterleaved(t *testing.T) {
	members := map[sandbox.Operation]func(*bench, sandbox.InstanceID) error{
		sandbox.OpActivate: func(b *bench, id sandbox.InstanceID) error { _, err := b.runtime.Activate(b.ctx, id); return err },
		sandbox.OpExecute: func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Execute(b.ctx, id, command)
			return err
		},
		sandbox.OpWriteFile: func(b *bench, id sandbox.InstanceID) error {
			return b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: sandbox.OutputPath + "/a"})
		},
		sandbox.OpSnapshot: func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Snapshot(b.ctx, id, sandbox.SnapshotRequest{ExpiresAt: later})
			return err
		},
		sandbox.OpRelease: func(b *bench, id sandbox.InstanceID) error {
			_, err := b.runtime.Release(b.ctx, id, sandbox.ReleaseRequest{ExpiresAt: later})
			return err
		},
		sandbox.OpOpenProcess: func(b *bench, id sandbox.InstanceID) error {
			p, err := b.runtime.OpenProcess(b.ctx, id, program)
			if err == nil {
				err = p.Destroy(b.ctx)
			}
			return err
		},
	}
	const provisioning, active, releasing, activating = "provisioning", "active", "releasing", "activating"
	type refusals map[sandbox.Operation][2]string // expected and actual, of what is refused
	for slow, c := range map[sandbox.Operation]struct {
		from, after string // after is the state when it has ended, "" for no instance
		refused     refusals
	}{
		sandbox.OpActivate: {provisioning, active, refusals{
			sandbox.OpActivate: {provisioning, activating}, sandbox.OpExecute: {active, activating}, sandbox.OpSnapshot: {active, activating},
			sandbox.OpRelease: {active, activating}, sandbox.OpOpenProcess: {active, activating}, sandbox.OpWriteFile: {"provisioning or active", activating},
		}},
		sandbox.OpRelease: {active, "", refusals{
			sandbox.OpActivate: {provisioning, releasing}, sandbox.OpExecute: {active, releasing}, sandbox.OpSnapshot: {active, releasing},
			sandbox.OpRelease: {active, releasing}, sandbox.OpOpenProcess: {active, releasing}, sandbox.OpWriteFile: {"provisioning or active", releasing},
		}},
		sandbox.OpSnapshot: {active, active, refusals{sandbox.OpActivate: {provisioning, active}, sandbox.OpRelease: {active, sandbox.ActualBusy}}},
		sandbox.OpExecute:  {active, active, refusals{sandbox.OpActivate: {provisioning, active}, sandbox.OpRelease: {active, sandbox.ActualBusy}}},
		sandbox.OpWriteFile: {provisioning, provisioning, refusals{
			sandbox.OpActivate: {provisioning, sandbox.ActualBusy}, sandbox.OpExecute: {active, provisioning}, sandbox.OpSnapshot: {active, provisioning},
			sandbox.OpRelease: {active, provisioning}, sandbox.OpOpenProcess: {active, provisioning},
		}},
	} {
		t.Run(string(slow), func(t *testing.T) {
			b := newBench(t)
			id := b.provision(durable)
			if c.from == active {
				if _, err := b.runtime.Activate(b.ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			begun, goOn := make(chan struct{}), make(chan struct{})
			first := make(chan struct{}, 1) // the slow one's token
			first <- struct{}{}
			b.fake.on[slow] = func(context.Context) error {
				select {
				case <-first:
					close(begun)
					<-goOn
				default:
				}
				return nil
			}
			ended := make(chan error, 1)
			go func() { ended <- members[slow](b, id) }()
			<-begun
			for op, ask := range members {
				refusal, no := c.refused[op]
				for n := range 2 {
					before := b.called(op)
					err := ask(b, id)
					switch {
					case no && (!errors.Is(err, sandbox.Conflict(op, refusal[0], refusal[1])) || b.called(op) != before):
						t.Errorf("%s, time %d: %v, and %d calls of the provider", op, n, err, b.called(op)-before)
					case !no && (err != nil || b.called(op) != before+1):
						t.Errorf("%s, time %d, may come in between: %v", op, n, err)
					}
				}
			}
			close(goOn)
			if err := <-ended; err != nil {
				t.Errorf("the slow one: %v", err)
			}
			for op, want := range map[sandbox.Operation]error{
				sandbox.OpActivate: sandbox.Conflict(sandbox.OpActivate, provisioning, active),
				sandbox.OpExecute:  sandbox.Conflict(sandbox.OpExecute, active, provisioning),
			} {
				switch {
				case c.after == "":
					want = sandbox.NoInstance(op, id)
				case c.after == active && op == sandbox.OpExecute, c.after == provisioning && op == sandbox.OpActivate:
					continue // below
				}
				if err := members[op](b, id); !errors.Is(err, want) {
					t.Errorf("then %s: %v", op, err)
				}
			}
			if c.after == provisioning {
				if err := members[sandbox.OpActivate](b, id); err != nil {
					t.Error(err)
				}
			}
			if c.after != "" {
				if err := errors.Join(members[sandbox.OpExecute](b, id), members[sandbox.OpRelease](b, id)); err != nil {
					t.Error(err)
				}
			}
			if instances, _ := b.alive(); instances != 0 {
				t.Errorf("%d instances are left of one", instances)
			}
		})
	}
}
