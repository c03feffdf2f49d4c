package probe

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/sandbox"
)

// T is one probe on its way.
//
// Concurrency: Check, Overclaim, Observe, Control and the provider may be used
// by goroutines of the probe; whatever stops the probe (Need, Fatal, the
// methods of Machine) only by the one that Run was called on.
type T struct {
	run   *run
	probe *Probe
	ctx   context.Context

	mu      sync.Mutex
	row     report.Row
	checks  map[string]int // index in row.Checks
	cleanup []func()
}

// stopped ends a probe.
type stopped struct{}

// Context is the run's.
func (t *T) Context() context.Context { return t.ctx }

// Provider is the target, with every call bounded, recorded and checked.
func (t *T) Provider() sandbox.Provider { return seam{t} }

// Optional returns the target's optional members, wrapped likewise. nil fields
// are absent.
func (t *T) Optional() sandbox.Optional { return seam{t}.Optional() }

// Envelope is what the target advertised, with defaults.
func (t *T) Envelope() sandbox.Capabilities { return t.run.envelope }

// Has reports whether a token was derived and declared.
func (t *T) Has(k report.Token) bool { return t.run.declared[k] }

// Target is what is tested.
func (t *T) Target() *Target { return t.run.target }

// Restart ends the provider as a crash would and goes on with what is opened
// on the same state. The probe is skipped where nobody can do that from here.
func (t *T) Restart() {
	r := t.run
	if r.target.Restart == nil {
		t.NotHere("the provider cannot be restarted from here")
	}
	p, err := bounded(t.ctx, r.within(t.ctx, r.o.Patience), r.target.Restart, nil)
	if err == nil && p == nil {
		err = errors.New("no provider")
	}
	if err != nil {
		t.Unjudged("restart", "the restart failed: "+text(err))
	}
	members, err := bounded(t.ctx, r.within(t.ctx, r.o.Patience), func(context.Context) (sandbox.Optional, error) { return p.Optional(), nil }, nil)
	if err != nil {
		t.Unjudged("restart", "the restarted provider gives no members: "+text(err))
	}
	r.target.Provider, r.optional = p, members
}

// Census names all that the provider has on its host. It is false where nobody
// can say.
func (t *T) Census() ([]string, bool) {
	r := t.run
	if r.target.Census == nil {
		return nil, false
	}
	lines, err := bounded(t.ctx, r.within(t.ctx, r.o.Patience), r.target.Census, nil)
	if err != nil {
		t.Unjudged("census", "the census failed: "+text(err))
	}
	return lines, true
}

// Patience is the longest wait for one answer, beyond what the call itself may
// take.
func (t *T) Patience() time.Duration { return t.run.o.Patience }

// StreamBytes is how much a probe of throughput moves.
func (t *T) StreamBytes() int64 { return t.run.o.StreamBytes }

// Check records an assertion of this probe. A disabled one always holds.
func (t *T) Check(id string, ok bool, expected string, got any) bool {
	return t.check(report.Fail, id, ok, expected, got)
}

// Served is Check for what the envelope advertises: where it does not hold,
// the target claims what it does not do.
func (t *T) Served(id string, ok bool, expected string, got any) bool {
	return t.check(report.Overclaim, id, ok, expected, got)
}

func (t *T) check(bad report.Status, id string, ok bool, expected string, got any) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, seen := t.checks[id]
	if !seen {
		i = len(t.row.Checks)
		t.checks[id] = i
		t.row.Checks = append(t.row.Checks, report.Check{ID: id, Status: report.Pass})
	}
	c := &t.row.Checks[i]
	c.Times++
	if !ok {
		c.Status = c.Status.Worse(bad)
		t.row.Status = t.row.Status.Worse(bad)
		t.find(report.Finding{Check: id, Status: bad, Expected: expected, Got: text(got)})
	}
	return ok
}

// find keeps a finding, a bounded number of each. The caller holds mu.
func (t *T) find(f report.Finding) {
	const most = 32
	if len(t.row.Findings) < most {
		f.Expected, f.Got = report.Printable(f.Expected), report.Printable(f.Got)
		t.row.Findings = append(t.row.Findings, f)
	}
}

// Need records that an answer came, and stops the probe if an error came
// instead. An error that says that the target cannot do it is an overclaim: the
// probe's tokens say that it can.
func (t *T) Need(id string, err error) {
	if err == nil {
		t.Check(id, true, "", nil)
		return
	}
	bad := report.Fail
	if e, ok := errors.AsType[*sandbox.Error](err); ok &&
		(e.Kind == sandbox.CapabilityUnavailable || e.Kind == sandbox.LifecycleConflict && isUnsupported(e.Actual)) {
		bad = report.Overclaim
	}
	t.check(bad, id, false, "an answer", err)
	panic(stopped{})
}

func isUnsupported(actual string) bool {
	const suffix = "_unsupported"
	return len(actual) > len(suffix) && actual[len(actual)-len(suffix):] == suffix
}

// Refused records whether err is the contract's error want (compared like
// errors.Is: only the fields that want sets). It does not stop the probe.
func (t *T) Refused(id string, err error, want *sandbox.Error) bool {
	got := any(err)
	if err == nil {
		got = "success"
	}
	return t.Check(id, errors.Is(err, want), want.Error(), got)
}

// Fatal records a failed check and stops the probe.
func (t *T) Fatal(id, expected string, got any) {
	t.Check(id, false, expected, got)
	panic(stopped{})
}

// Stop stops the probe with what it has recorded.
func (t *T) Stop() { panic(stopped{}) }

// Control records a live positive control of a negative check. One that did
// not fire makes the row an error and stops the probe: it could not have
// failed.
func (t *T) Control(id string, fired bool, why any) {
	t.mu.Lock()
	t.row.Controls = append(t.row.Controls, report.Control{ID: id, Fired: fired})
	t.mu.Unlock()
	if !fired {
		t.Unjudged(id, "the control "+id+" did not fire: "+text(why))
	}
}

// Unjudged makes the row an error and stops the probe: the suite cannot say.
func (t *T) Unjudged(id, why string) {
	t.mu.Lock()
	t.row.Status = report.Error
	t.find(report.Finding{Check: id, Status: report.Error, Expected: "a control that fires", Got: why})
	t.mu.Unlock()
	panic(stopped{})
}

// NotHere ends the probe as skipped although its tokens are there: what it
// needs besides is missing here, and why says what.
func (t *T) NotHere(why string) {
	t.mu.Lock()
	t.row.Status, t.row.Reason = t.row.Status.Worse(report.Skip), why
	t.mu.Unlock()
	panic(stopped{})
}

// Observe notes something that is neither right nor wrong.
func (t *T) Observe(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.row.Observations) < 32 {
		t.row.Observations = append(t.row.Observations, report.Printable(fmt.Sprintf(format, args...)))
	}
}

// Defer runs f when the probe has ended, before its teardown, last first.
func (t *T) Defer(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanup = append(t.cleanup, f)
}

// Bounded makes a call of a probe that is none of the provider's members, as a
// read from a stream of the target is: in its time, and survived if it panics.
// Errors: the call's own; one of which [Hung] is true; a word for a panic.
func Bounded[V any](t *T, call func() (V, error)) (V, error) {
	return bounded(t.ctx, t.run.within(t.ctx, t.run.o.Patience), func(context.Context) (V, error) { return call() }, nil)
}

// Nonce is 16 hex digits that this run has not used before.
func (t *T) Nonce() string { return hex.EncodeToString(t.run.random(8)) }

// Bytes is n bytes that nobody can know.
func (t *T) Bytes(n int) []byte { return t.run.random(n) }

// ID mints an identifier of the form that production uses.
func (t *T) ID(prefix string) string { return prefix + hex.EncodeToString(t.run.random(10)) }

// Session is the Session of this pass, Workspace its Workspace.
func (t *T) Session() string { return t.run.session }

// Workspace is the Workspace of this pass.
func (t *T) Workspace() string { return t.run.workspace }

// Now is the target's time.
func (t *T) Now() time.Time { return t.run.clock.Now() }

// Present reports whether at is about now: hours of a wrong zone are not, and a
// clock that is some seconds off is.
func (t *T) Present(at sandbox.Timestamp) bool {
	const skew = 5 * time.Minute
	when, err := at.Time()
	return err == nil && when.Sub(t.Now()).Abs() <= skew
}

// Sleep lets d pass on the target's clock: by moving it where it can be moved.
func (t *T) Sleep(d time.Duration) {
	if !t.run.sleep(t.ctx, d) {
		panic(stopped{})
	}
}

// Until sleeps until the target's clock is past the deadline.
func (t *T) Until(deadline sandbox.Timestamp) {
	at, err := deadline.Time()
	if err != nil {
		t.Unjudged("clock", err.Error())
	}
	if d := at.Sub(t.Now()); d >= 0 {
		t.Sleep(d + time.Millisecond)
	}
}

// text is a value for a person: errors and strings as they are.
func text(v any) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = "a value that panics when it is printed"
		}
	}()
	switch v := v.(type) {
	case nil:
		return "nothing"
	case error:
		return v.Error()
	case string:
		return v
	case []byte:
		if len(v) > 200 {
			return fmt.Sprintf("%d bytes beginning %q", len(v), v[:64])
		}
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}
