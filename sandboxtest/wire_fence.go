package sandboxtest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// wireFenceFaults are wrong in what they know of leases, and after a crash.
func wireFenceFaults() []Saboteur {
	return []Saboteur{
		{ID: "P27", Fault: "a stale epoch is accepted", Kills: "wire.fence.stale", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if highest := k.epochs[c.lease]; c.epoch < highest && k.crashed[c.lease] == 0 {
				env.Fire()
				c.setLease(c.lease, highest)
			}
			return true
		})},
		{ID: "P28", Fault: "the stream of an old epoch is kept open", Kills: "wire.fence.stream", Serve: keepsOpen},
		{ID: "Y200", Fault: "the epoch of a lease is forgotten in a crash", Kills: "wire.fence.durable", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if highest := k.crashed[c.lease]; c.epoch < highest {
				env.Fire()
				c.setLease(c.lease, highest)
			}
			return true
		})},
		{ID: "Y201", Fault: "a live process is lost to the next epoch", Kills: "wire.fence.takeover", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if c.endpoint != wire.ProcessStream || c.epoch <= k.lowest[c.lease] {
				return true
			}
			env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagProcessNotFound, Operation: string(sandbox.OpOpenProcess)})
			return false
		})},
		{ID: "Y202", Fault: "an instance serves whoever names it", Kills: "wire.fence.other-lease", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if owner := k.owners[c.instance]; owner != "" && owner != c.lease && c.endpoint != wire.Destroy {
				env.Fire()
				c.setLease(owner, k.epochs[owner])
			}
			return true
		})},
		{ID: "Y203", Fault: "a reconciler is no owner, and so cannot destroy", Kills: "wire.fence.reconciler", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if owner := k.owners[c.instance]; owner == "" || owner == c.lease || c.endpoint != wire.Destroy || !byHand(c.r) {
				return true
			}
			env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagLeaseFenced, Operation: string(sandbox.OpDestroy), LeaseEpoch: k.epochs[k.owners[c.instance]]})
			return false
		})},
		{ID: "Y204", Fault: "a rollback in the next epoch is settled by nobody", Kills: "wire.fence.rollback", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if c.endpoint != wire.RollbackOperation || c.epoch <= k.lowest[c.lease] {
				return true
			}
			env.Fire()
			c.answer(wire.Settled{Settled: true})
			return false
		})},
		{ID: "Y205", Fault: "a process that a crash took is said to have exited", Kills: "wire.fence.crash", Serve: fencing(func(k *known, env *Env, c *wireCall) bool {
			if c.endpoint != wire.ProcessWait || k.crashed[c.lease] == 0 {
				return true
			}
			env.Fire()
			exit := sandbox.Exited(0)
			c.answer(wire.Waited{Exit: &exit})
			return false
		})},
	}
}

// known is what a saboteur remembers of leases, also over a crash.
type known struct {
	mu                      sync.Mutex
	epochs, lowest, crashed map[string]int64
	owners                  map[string]string // of instances
}

// wireCall is one request on its way to the server.
type wireCall struct {
	w        http.ResponseWriter
	r        *http.Request
	endpoint wire.Endpoint
	lease    string
	epoch    int64
	instance string
}

func (c *wireCall) setLease(id string, epoch int64) {
	c.r.Header.Set(wire.HeaderLeaseID, id)
	c.r.Header.Set(wire.HeaderLeaseEpoch, strconv.FormatInt(epoch, 10))
}

// refuse answers with an error, answer with a 200.
func (c *wireCall) refuse(failure error) {
	body, status, err := wire.EncodeError(failure)
	c.write(status, body, err)
}

func (c *wireCall) answer(m wire.Message) {
	body, err := wire.Encode(m)
	c.write(http.StatusOK, body, err)
}

func (c *wireCall) write(status int, body []byte, err error) {
	if err != nil { // a fault of this file: nobody is to take it for an answer
		panic(err)
	}
	h := c.w.Header()
	h.Set(wire.HeaderWire, wire.Revision)
	h.Set(wire.HeaderBoot, string(wire.NewBootID()))
	h.Set(wire.HeaderCapabilities, "sha256:"+strings.Repeat("0", 64))
	h.Set("Content-Type", wire.MediaJSON)
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // who has gone, has gone
}

var instanceID = regexp.MustCompile(`"instance_id":("[^"]*")`)

// fencing makes a saboteur of a rule that sees each call with all that was known
// before it. The call goes on where the rule says true.
func fencing(rule func(*known, *Env, *wireCall) bool) func(http.Handler, *Env) http.Handler {
	var all sync.Map // of *Env, because a server that comes back is wrapped again
	return func(h http.Handler, env *Env) http.Handler {
		value, _ := all.LoadOrStore(env, &known{epochs: map[string]int64{}, lowest: map[string]int64{}, owners: map[string]string{}})
		k := value.(*known)
		k.mu.Lock()
		k.crashed = maps.Clone(k.epochs)
		k.mu.Unlock()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := &wireCall{w: w, r: r}
			c.endpoint, _ = wire.ParsePath(r.URL.Path)
			header, err := wire.ParseRequestHeader(r.Header, c.endpoint)
			c.lease, c.epoch = header.Lease.ID, header.Lease.Epoch
			if c.lease == "" || err != nil { // the server refuses it
				h.ServeHTTP(w, r)
				return
			}
			head := make([]byte, 4096)
			n, _ := io.ReadFull(r.Body, head)
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(head[:n]), r.Body), r.Body}
			if found := instanceID.FindSubmatch(head[:n]); found != nil {
				_ = json.Unmarshal(found[1], &c.instance)
			}
			k.mu.Lock()
			if _, seen := k.lowest[c.lease]; !seen {
				k.lowest[c.lease] = c.epoch
			}
			on := rule(k, env, c)
			k.epochs[c.lease] = max(k.epochs[c.lease], c.epoch)
			if _, seen := k.owners[c.instance]; !seen && c.instance != "" {
				k.owners[c.instance] = c.lease
			}
			k.mu.Unlock()
			if on {
				h.ServeHTTP(w, r)
			}
		})
	}
}

// keepsOpen swallows the word that ends a stream of an old epoch, and the end.
func keepsOpen(h http.Handler, env *Env) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.ProcessStream.Path() {
			h.ServeHTTP(w, r)
			return
		}
		swallow := &swallower{ResponseWriter: w}
		h.ServeHTTP(swallow, r)
		if swallow.done {
			env.Fire()
			<-r.Context().Done()
		}
	})
}

// swallower drops a detach frame whose reason is a higher epoch.
type swallower struct {
	http.ResponseWriter
	done bool
}

// Unwrap gives net/http what lies under it.
func (s *swallower) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write passes everything but that frame.
func (s *swallower) Write(b []byte) (int, error) {
	kept := b
	if i := bytes.Index(b, []byte{byte(wire.TypeDetach), 0, 0, 0}); i >= 0 && bytes.Contains(b[i:], []byte(wire.DetachFenced)) {
		kept, s.done = b[:i], true
	}
	if _, err := s.ResponseWriter.Write(kept); err != nil {
		return 0, err
	}
	return len(b), nil
}
