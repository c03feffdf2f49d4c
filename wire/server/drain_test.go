package server

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server/store"
)

// leaver is a provider of which each call is the reason why its server leaves:
// the call ends only after the server began to.
type leaver struct {
	f     *fixture
	hooks *hooked
	leave func()
}

func newLeaver(t *testing.T) *leaver {
	t.Helper()
	l := &leaver{hooks: &hooked{}}
	l.f = newFixture(t, hook(l.hooks))
	l.leave = sync.OnceFunc(func() {
		go l.f.stop()
		<-l.f.s.leaving
	})
	return l
}

// Whoever made the call that a server ends with has its answer, and is not told
// to ask again where nobody answers any more.
func TestTheLastCallIsAnswered(t *testing.T) {
	for name, last := range map[string]func(*leaver){
		"provision": func(l *leaver) {
			l.hooks.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				l.leave()
				return l.hooks.Provider.Provision(ctx, r)
			}
			id := l.f.provision("").Value.InstanceID
			l.f.must(l.hooks.Provider.Destroy(l.f.Context(), id))
		},
		"execute": func(l *leaver) {
			id := l.f.active()
			l.hooks.execute = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				l.leave()
				return l.hooks.Provider.Execute(ctx, id, c)
			}
			if r := l.f.call(wire.Execute, "", wire.ExecuteCall{InstanceID: id, Command: command("echo x")}); r.status != http.StatusOK {
				l.f.Errorf("%d %s", r.status, r.body)
			}
		},
		"its failure": func(l *leaver) {
			id := l.f.active()
			l.hooks.activate = func(context.Context, sandbox.InstanceID) (sandbox.Handoff[sandbox.Instance], error) {
				l.leave()
				return sandbox.Handoff[sandbox.Instance]{}, sandbox.NoInstance(sandbox.OpActivate, id)
			}
			l.f.want(l.f.call(wire.Activate, "", wire.InstanceRequest{InstanceID: id}), sandbox.NoInstance(sandbox.OpActivate, id))
		},
		"rollback": func(l *leaver) {
			l.hooks.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				h, err := l.hooks.Provider.Provision(ctx, r)
				undo := h.Rollback
				h.Rollback = func(ctx context.Context) error {
					l.leave()
					return undo(ctx)
				}
				return h, err
			}
			op := wire.NewOperationID()
			l.f.provision(op)
			ok[wire.Settled](l.f, l.f.call(wire.RollbackOperation, "", wire.RollbackRequest{OperationID: op, Member: wire.Provision}))
			if left := l.f.memory.Census(); len(left) != 0 {
				l.f.Errorf("left %v", left)
			}
		},
		"a poll that comes while it leaves": func(l *leaver) {
			left, end := make(chan struct{}), make(chan struct{})
			l.hooks.provision = func(ctx context.Context, r sandbox.ProvisionRequest) (sandbox.Handoff[sandbox.Instance], error) {
				l.leave()
				close(left)
				<-end
				return l.hooks.Provider.Provision(ctx, r)
			}
			op := wire.NewOperationID()
			l.f.wait = 0
			if r := l.f.call(wire.Provision, op, provisionRequest()); r.status != http.StatusAccepted {
				l.f.Fatalf("%d %s", r.status, r.body)
			}
			<-left
			if r := l.f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op}); r.status != http.StatusAccepted {
				l.f.Errorf("%d %s", r.status, r.body)
			}
			go func() {
				for handlersOf("outcome") == 0 {
					runtime.Gosched()
				}
				close(end)
			}()
			got := ok[wire.InstanceHandoff](l.f, l.f.call(wire.PollOperation, "", wire.OperationRequest{OperationID: op, WaitMS: 20_000}))
			l.f.must(l.hooks.Provider.Destroy(l.f.Context(), got.Value.InstanceID))
		},
	} {
		t.Run(name, func(t *testing.T) { last(newLeaver(t)) })
	}
}

// counted is a context that counts who still waits for its end.
type counted struct {
	context.Context
	waiting atomic.Int64
}

func (*counted) Value(any) any { return nil } // else who waits registers with the one inside

func (c *counted) AfterFunc(f func()) func() bool {
	c.waiting.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return sync.OnceValue(func() bool {
		c.waiting.Add(-1)
		return stop()
	})
}

// A server lives as long as its machines, so a call that is over has left
// nothing in it that grows from call to call.
func TestACallThatIsOverIsForgotten(t *testing.T) {
	f := newFixture(t, nil)
	id := f.active()
	c := &counted{Context: f.s.ctx}
	f.s.ctx = c
	for name, call := range map[string]func(r *http.Request) response{
		"with a budget": func(r *http.Request) response {
			r.Header.Set(wire.HeaderDeadline, "60000")
			return f.do(r)
		},
		"without": f.do,
	} {
		b, err := wire.NewBody(wire.ExecuteCall{InstanceID: id, Command: command("echo x")}, nil)
		f.must(err)
		if r := call(f.request(t.Context(), wire.Execute, "", b.Reader(), b.Size())); r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
		f.s.work.Wait()
		if n := c.waiting.Load(); n != 0 {
			t.Errorf("%s: %d still wait", name, n)
		}
	}
}

// slowStore is a journal whose first Sync takes as long as the test wants.
type slowStore struct {
	store.Store
	once        sync.Once
	syncs, goOn chan struct{}
	closed      atomic.Bool
	early       atomic.Bool // it was closed under a call
}

func (*slowStore) Durable() bool { return true }

func (s *slowStore) Sync() error {
	s.once.Do(func() {
		close(s.syncs)
		<-s.goOn
		s.early.Store(s.closed.Load())
	})
	return nil
}

func (s *slowStore) Close() error {
	s.closed.Store(true)
	return nil
}

// A call that a server let in has its answer before the journal is closed, also
// where nothing runs for it yet, or nothing any more: its operation may be over,
// and the server gone, before its caller comes to wait for it.
func TestACallThatWasLetInIsAnswered(t *testing.T) {
	slow := &slowStore{syncs: make(chan struct{}), goOn: make(chan struct{})}
	f := newFixture(t, func(o *Options) {
		o.Journal = func() (store.Store, error) {
			inner, err := store.Memory()
			slow.Store = inner
			return slow, err
		}
	})
	answered := make(chan response, 1)
	go func() { answered <- f.call(wire.Provision, "", provisionRequest()) }()
	<-slow.syncs
	go f.stop()
	<-f.s.leaving
	for range 1000 { // a server that does not wait is at its journal by then
		runtime.Gosched()
	}
	close(slow.goOn)
	f.want(<-answered, overloaded())
	f.stop()
	if slow.early.Load() || !slow.closed.Load() {
		t.Error("its journal was closed under it", slow.early.Load(), slow.closed.Load())
	}
}
