package sandboxruntime_test

import (
	"context"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
	"github.com/checkfu/checkfu/sandbox"
)

// bench is one runtime over one fake provider on a clock that stands still.
type bench struct {
	*testing.T
	ctx     context.Context
	clock   *clocktest.Clock
	fake    *fake
	runtime *sandboxruntime.Runtime
	reports chan error
}

func (b *bench) selector(adapters ...sandboxruntime.Adapter) sandboxruntime.Selector {
	return sandboxruntime.Selector{Adapters: adapters, Clock: b.clock, Report: func(err error) { b.reports <- err }}
}

func (b *bench) provision(mode sandbox.RetentionMode) sandbox.InstanceID {
	b.Helper()
	i, err := b.runtime.Provision(b.ctx, request(b.fake, mode))
	if err != nil {
		b.Fatal(err)
	}
	return i.InstanceID
}

func (b *bench) activate(mode sandbox.RetentionMode) sandbox.InstanceID {
	b.Helper()
	id := b.provision(mode)
	if _, err := b.runtime.Activate(b.ctx, id); err != nil {
		b.Fatal(err)
	}
	return id
}

func (b *bench) called(op sandbox.Operation) int {
	b.fake.mu.Lock()
	defer b.fake.mu.Unlock()
	return b.fake.calls[op]
}

func (b *bench) rolledBack() int {
	b.fake.mu.Lock()
	defer b.fake.mu.Unlock()
	return b.fake.rollbacks
}

func (b *bench) alive() (instances, snapshots int) {
	b.fake.mu.Lock()
	defer b.fake.mu.Unlock()
	return len(b.fake.instances), len(b.fake.snapshots)
}

var (
	durable = sandbox.RetentionDurable
	zdr     = sandbox.RetentionEphemeralZDR
	later   = sandbox.At(epoch.Add(24 * time.Hour))
	command = sandbox.Command{Executable: "echo", Arguments: []string{"hello"}, WorkingDirectory: "/", TimeoutSeconds: 10, OutputLimitBytes: 1 << 20}
	program = sandbox.ProcessRequest{Executable: "cat", WorkingDirectory: "/"}
)
