package sandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// wireOperationFaults are wrong in what comes more than once, is undone, or is
// a content.
func wireOperationFaults() []Saboteur {
	of := func(e wire.Endpoint, change func(*reply) bool) func(http.Handler, *Env) http.Handler {
		return retold(func(r *http.Request, a *reply) bool { return byHand(r) && r.URL.Path == e.Path() && change(a) })
	}
	var all []Saboteur
	for _, c := range []struct {
		id    string
		e     wire.Endpoint
		kills string
	}{
		{"Y70", wire.Provision, "at-once"},
		{"Y71", wire.Activate, "again/activate"},
		{"Y72", wire.WriteFile, "again/written-once"},
		{"Y73", wire.Execute, "again/run-once"},
		{"Y74", wire.Snapshot, "again.snapshots/snapshot"},
		{"Y75", wire.CloneSnapshot, "again.snapshots/clone_snapshot"},
		{"Y76", wire.Release, "again.snapshots/release"},
		{"Y77", wire.Resume, "again.snapshots/resume"},
		{"Y78", wire.DispatchActiveWrite, "again.active-write/dispatch_active_write"},
	} {
		all = append(all, Saboteur{ID: c.id, Fault: "each delivery of " + string(c.e) + " is another operation", Kills: "wire.operation." + c.kills,
			Serve: delivering(func(d *deliveries, now *delivery) bool {
				return byHand(now.r) && now.e == c.e && now.again && !d.undone[now.id]
			})})
	}
	for _, c := range []struct {
		id     string
		member wire.Endpoint
		kills  string
	}{
		{"Y90", wire.Provision, "after/gone"},
		{"Y91", wire.Activate, "activate"},
		{"Y92", wire.Snapshot, "snapshots/snapshot"},
		{"Y93", wire.CloneSnapshot, "snapshots/clone"},
		{"Y94", wire.Resume, "snapshots/resume"},
		{"Y95", wire.Release, "snapshots/release"},
	} {
		all = append(all, Saboteur{ID: c.id, Fault: "a rollback of " + string(c.member) + " settles and undoes nothing", Kills: "wire.rollback." + c.kills,
			Serve: pretending(c.member)})
	}
	return slices.Concat(all, []Saboteur{
		{ID: "Y79", Fault: "an id with another body gets the first one's answer", Kills: "wire.operation.mismatch/body", Serve: replaysAnyBody},
		{ID: "Y80", Fault: "an id is that of an operation for one endpoint only", Kills: "wire.operation.mismatch/endpoint", Serve: delivering(func(d *deliveries, c *delivery) bool {
			return byHand(c.r) && c.first != c.e
		})},
		{ID: "Y81", Fault: "a process that is opened again is in its own way", Kills: "wire.operation.again.process/open_process", Serve: func(h http.Handler, env *Env) http.Handler {
			var seen sync.Map
			return retold(func(r *http.Request, a *reply) bool {
				_, again := seen.LoadOrStore(r.Header.Get(wire.HeaderOperationID), true)
				if r.URL.Path != wire.OpenProcess.Path() || !again || a.status != http.StatusOK {
					return false
				}
				return a.refuse(sandbox.Conflict(sandbox.OpOpenProcess, "no_process", "process_already_open"))
			})(h, env)
		}},
		{ID: "Y81b", Fault: "what opens a process begins its program twice", Kills: "wire.operation.again.process/run-once", Serve: changed(func(r *http.Request) bool {
			if !byHand(r) || r.URL.Path != wire.OpenProcess.Path() {
				return false
			}
			body := bodyOf(r)
			m, err := wire.Decode[wire.OpenProcessRequest](body)
			if err != nil || len(m.Process.Arguments) == 0 {
				return false
			}
			script := &m.Process.Arguments[len(m.Process.Arguments)-1]
			first, _, several := strings.Cut(*script, "; ")
			if !several || !strings.HasPrefix(first, "echo x >>") {
				return false
			}
			*script = first + "; " + *script
			if body, err = wire.Encode(m); err == nil {
				setBody(r, body)
			}
			return err == nil
		})},
		{ID: "Y82", Fault: "what was dispatched can be aborted", Kills: "wire.operation.again.active-write/abort-after-dispatch", Serve: of(wire.AbortActiveWrite, func(a *reply) bool {
			if a.status != http.StatusConflict || bytes.Contains(a.body.Bytes(), []byte("Wire")) {
				return false
			}
			a.status = http.StatusOK
			a.say(`{"journal":"rolled_back"}`)
			return true
		})},
		{ID: "Y83", Fault: "an operation that nobody began is said to run", Kills: "wire.operation.poll/unknown", Serve: of(wire.PollOperation, func(a *reply) bool {
			if !bytes.Contains(a.body.Bytes(), []byte(wire.TagOperationUnknown)) {
				return false
			}
			a.status = http.StatusAccepted
			a.say(`{"operation_id":"` + string(wire.NewOperationID()) + `","state":"running"}`)
			return true
		})},
		{ID: "Y84", Fault: "a poll answers in other words than the call", Kills: "wire.operation.poll/answer", Serve: of(wire.PollOperation, func(a *reply) bool {
			return a.status == http.StatusOK && a.more(wire.TypePing)
		})},
		{ID: "Y85", Fault: "what is left of the caller's time is a part of the request", Kills: "wire.operation.lost/run-once", Serve: delivering(func(d *deliveries, c *delivery) bool {
			return c.again && c.e == wire.Execute && c.deadline != c.r.Header.Get(wire.HeaderDeadline)
		})},
		{ID: "Y86", Fault: "a command ends with the connection of its caller", Kills: "wire.operation.abandoned", Serve: cancelling},
		{ID: "Y87", Fault: "the journal of commands is lost in a crash, and their machine is not", Kills: "wire.operation.crash", Serve: delivering(func(d *deliveries, c *delivery) bool {
			return c.e == wire.Execute && c.start < d.starts
		})},
		{ID: "Y99c", Fault: "who destroys what is not there is told so", Kills: "wire.operation.again/nothing-left", Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != wire.DestroySnapshot.Path() || !bytes.Contains(bodyOf(r), []byte(`"none-`)) {
					h.ServeHTTP(w, r)
					return
				}
				a := listen(h, r)
				if a.status == http.StatusOK {
					env.Fire()
					a.refuse(&sandbox.Error{Kind: sandbox.SnapshotNotFound, Operation: sandbox.OpDestroySnapshot, ID: "none"})
				}
				a.send(w)
			})
		}},
		{ID: "Y96", Fault: "a rollback leaves no tombstone", Kills: "wire.rollback.early/late", Serve: delivering(func(d *deliveries, c *delivery) bool {
			return c.e == wire.Provision && d.undone[c.id] && (!c.again || c.early)
		})},
		{ID: "Y97", Fault: "a rollback that comes again is told that there is nothing", Kills: "wire.rollback.after/again", Serve: func(h http.Handler, env *Env) http.Handler {
			var seen sync.Map
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var q wire.RollbackRequest
				if !byHand(r) || r.URL.Path != wire.RollbackOperation.Path() || json.Unmarshal(bodyOf(r), &q) != nil {
					h.ServeHTTP(w, r) // a stream must not be held back until its end
					return
				}
				_, again := seen.LoadOrStore(q.OperationID, true)
				a := listen(h, r)
				if again && a.status == http.StatusOK {
					env.Fire()
					a.refuse(&wire.Error{Tag: wire.TagOperationUnknown, Operation: "rollback"})
				}
				a.send(w)
			})
		}},
		{ID: "Y98", Fault: "a late rollback is said to be settled", Kills: "wire.rollback.owned/refused", Serve: of(wire.RollbackOperation, func(a *reply) bool {
			if a.status != http.StatusConflict || bytes.Contains(a.body.Bytes(), []byte("Wire")) {
				return false
			}
			a.status = http.StatusOK
			a.say(`{"settled":true}`)
			return true
		})},
		{ID: "Y68", Fault: "a large file loses its last byte", Kills: "wire.bytes.most/whole", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, WriteFileFunc: func(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
				if len(w.Content) >= 1<<20 {
					env.Fire()
					w.Content = w.Content[:len(w.Content)-1]
				}
				return p.WriteFile(ctx, id, w)
			}}
		}},
		{ID: "Y69", Fault: "a file that is too large is any body that is too large", Kills: "wire.bytes.most/too-large", Serve: of(wire.WriteFile, func(a *reply) bool {
			return a.status == http.StatusRequestEntityTooLarge && a.refuse(&wire.Error{Tag: wire.TagPayloadTooLarge, Operation: "write_file", MaximumBytes: 16 << 20})
		})},
		{ID: "Y88", Fault: "the digest of a file is not looked at", Kills: "wire.bytes.announced/digest", Serve: believing("digest", func(data []byte) string {
			return strconv.Quote(string(wire.RequestDigest(data)))
		})},
		{ID: "Y89", Fault: "the size of a file is not looked at", Kills: "wire.bytes.announced/less", Serve: believing("size", func(data []byte) string {
			return strconv.Itoa(len(data))
		})},
		{ID: "Y99", Fault: "something comes behind the result", Kills: "wire.bytes.ends/execute", Serve: retold(func(r *http.Request, a *reply) bool {
			return byHand(r) && (r.URL.Path == wire.Execute.Path() || r.URL.Path == wire.PollOperation.Path()) &&
				a.header.Get("Content-Type") == wire.MediaFrames && a.more(wire.TypePing)
		})},
		{ID: "Y99b", Fault: "a file is said to be one byte shorter", Kills: "wire.bytes.read/result", Serve: of(wire.ReadFile, func(a *reply) bool {
			return a.instead(`"size":3000`, `"size":2999`)
		})},
	})
}

// refuse makes the answer an error.
func (t *reply) refuse(failure error) bool {
	body, status, err := wire.EncodeError(failure)
	if err != nil { // a fault of this file
		panic(err)
	}
	t.status = status
	t.header.Set("Content-Type", wire.MediaJSON)
	t.say(string(body))
	return true
}

// more writes one more frame.
func (t *reply) more(kind wire.Type) bool {
	_, _ = t.body.Write([]byte{byte(kind), 0, 0, 0, 0}) // memory takes everything
	return true
}

// delivery is one call of an operation.
type delivery struct {
	r        *http.Request
	e, first wire.Endpoint // first is where the id was met before, e if never
	id       wire.OperationID
	again    bool   // with the same body, at the same endpoint
	early    bool   // its rollback came before it
	deadline string // of the first one
	start    int    // of the server at the first one
}

// known of an operation.
type met struct {
	e        wire.Endpoint
	digest   sandbox.Digest
	deadline string
	early    bool
	start    int
}

// deliveries is what a saboteur remembers of operations, also over a crash.
type deliveries struct {
	mu     sync.Mutex
	starts int
	met    map[wire.OperationID]met
	undone map[wire.OperationID]bool
}

// delivering gives a new operation to each delivery for which rule says so,
// under the old id as far as its caller sees.
func delivering(rule func(*deliveries, *delivery) bool) func(http.Handler, *Env) http.Handler {
	var all sync.Map // of *Env, because a server that comes back is wrapped again
	return func(h http.Handler, env *Env) http.Handler {
		value, _ := all.LoadOrStore(env, &deliveries{met: map[wire.OperationID]met{}, undone: map[wire.OperationID]bool{}})
		d := value.(*deliveries)
		d.mu.Lock()
		d.starts++
		d.mu.Unlock()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e, _ := wire.ParsePath(r.URL.Path)
			t, _ := e.Traits()
			if e != wire.RollbackOperation && !t.Mutating || r.ContentLength > t.RequestBytes {
				h.ServeHTTP(w, r)
				return
			}
			body := bodyOf(r)
			if e == wire.RollbackOperation {
				var q wire.RollbackRequest
				if json.Unmarshal(body, &q) == nil {
					d.mu.Lock()
					d.undone[q.OperationID] = true
					d.mu.Unlock()
				}
				h.ServeHTTP(w, r)
				return
			}
			id := wire.OperationID(r.Header.Get(wire.HeaderOperationID))
			d.mu.Lock()
			c := &delivery{r: r, e: e, first: e, id: id, start: d.starts}
			digest := wire.RequestDigest(body)
			before, seen := d.met[id]
			if seen {
				c.first, c.again = before.e, before.e == e && before.digest == digest
				c.deadline, c.early, c.start = before.deadline, before.early, before.start
			} else {
				d.met[id] = met{e, digest, r.Header.Get(wire.HeaderDeadline), d.undone[id], d.starts}
			}
			another := rule(d, c)
			d.mu.Unlock()
			if !another {
				h.ServeHTTP(w, r)
				return
			}
			env.Fire()
			other := wire.NewOperationID()
			r.Header.Set(wire.HeaderOperationID, string(other))
			a := listen(h, r)
			a.instead(string(other), string(id))
			a.send(w)
		})
	}
}

// pretending answers the rollback of a finished operation of member, and does
// nothing.
func pretending(member wire.Endpoint) func(http.Handler, *Env) http.Handler {
	return func(h http.Handler, env *Env) http.Handler {
		var done sync.Map
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var q wire.RollbackRequest
			switch r.URL.Path {
			case member.Path():
				a := listen(h, r)
				if a.status == http.StatusOK {
					done.Store(wire.OperationID(r.Header.Get(wire.HeaderOperationID)), true)
				}
				a.send(w)
				return
			case wire.RollbackOperation.Path():
				if json.Unmarshal(bodyOf(r), &q) != nil || !byHand(r) {
					break
				}
				if _, finished := done.Load(q.OperationID); finished {
					env.Fire()
					(&wireCall{w: w, r: r}).answer(wire.Settled{Settled: true})
					return
				}
			}
			h.ServeHTTP(w, r)
		})
	}
}

// replaysAnyBody knows an operation by its id alone.
func replaysAnyBody(h http.Handler, env *Env) http.Handler {
	type answered struct {
		body []byte
		a    reply
	}
	var all sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !byHand(r) || r.URL.Path != wire.Provision.Path() {
			h.ServeHTTP(w, r)
			return
		}
		body, id := bodyOf(r), r.Header.Get(wire.HeaderOperationID)
		if before, seen := all.Load(id); seen && !bytes.Equal(before.(answered).body, body) {
			env.Fire()
			a := before.(answered).a
			a.send(w)
			return
		}
		a := listen(h, r)
		kept := answered{body, reply{status: a.status, header: a.header.Clone()}}
		kept.a.say(a.body.String())
		all.Store(id, kept)
		a.send(w)
	})
}

// cancelling drops a command whose caller has gone by the time that it would
// begin, and does not run it when it comes again.
func cancelling(h http.Handler, env *Env) http.Handler {
	var dropped sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !byHand(r) || r.URL.Path != wire.Execute.Path() || r.ContentLength > 1<<16 || !bytes.Contains(bodyOf(r), []byte("echo x >>")) {
			h.ServeHTTP(w, r)
			return
		}
		id := r.Header.Get(wire.HeaderOperationID)
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		// Whoever waits for an answer sends nothing meanwhile.
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := buffered.Reader.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			env.Fire()
			dropped.Store(id, true)
			return
		}
		_ = c.SetReadDeadline(time.Time{})
		a := &reply{header: http.Header{}}
		if _, was := dropped.Load(id); was {
			a.refuse(sandbox.Failed(sandbox.OpExecute, sandbox.ReasonIndeterminate, nil))
		} else {
			a = listen(h, r.WithContext(context.WithoutCancel(r.Context())))
		}
		a.header.Set("Connection", "close")
		a.write(buffered)
		_ = buffered.Flush()
	})
}

// believing puts into the call of a file what its data are.
func believing(name string, is func(data []byte) string) func(http.Handler, *Env) http.Handler {
	said := regexp.MustCompile(`"` + name + `":("[^"]*"|[0-9]+)`)
	return changed(func(r *http.Request) bool {
		if r.URL.Path != wire.WriteFile.Path() || r.ContentLength > 1<<16 {
			return false
		}
		frames := looseFrames(bodyOf(r))
		if len(frames) == 0 {
			return false
		}
		var data []byte
		for _, f := range frames[1:] {
			data = append(data, f.payload...)
		}
		call := string(frames[0].payload)
		made := said.ReplaceAllString(call, `"`+name+`":`+is(data))
		frames[0] = looseFrame{wire.TypeCall, uint32(len(made)), []byte(made)}
		if made == call {
			return false
		}
		setBody(r, joined(frames))
		return true
	})
}
