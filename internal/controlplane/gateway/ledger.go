package gateway

import (
	"strconv"
	"sync"

	"github.com/checkfu/checkfu/internal/egress/route"
)

// Usage is what a run has used.
type Usage struct {
	Requests     int64 `json:"requests"`      // that went to an upstream
	InputTokens  int64 `json:"input_tokens"`  // all of them, cached ones too
	CachedTokens int64 `json:"cached_tokens"` // those of them that were read from a cache
	OutputTokens int64 `json:"output_tokens"`
	// Estimated is how many answers did not tell their usage to the end, as those
	// that were cut. Of those, what was not told is counted as a token for each 4
	// bytes.
	Estimated int64 `json:"estimated"`
	UpBytes   int64 `json:"up_bytes"`   // of bodies, to the upstream
	DownBytes int64 `json:"down_bytes"` // of answers
}

func (u *Usage) add(v Usage) {
	u.Requests += v.Requests
	u.InputTokens += v.InputTokens
	u.CachedTokens += v.CachedTokens
	u.OutputTokens += v.OutputTokens
	u.Estimated += v.Estimated
	u.UpBytes += v.UpBytes
	u.DownBytes += v.DownBytes
}

// ledger counts by run.
type ledger struct {
	limits Limits

	mu      sync.Mutex
	runs    map[string]*account
	running int64
	held    int64 // bytes of bodies
}

type account struct {
	used    Usage
	running int64
	held    int64
}

// begin opens a request of a run.
// Errors: *route.Refusal 429, at a ceiling or a limit.
func (g *ledger) begin(l Lease) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.runs[l.RunID]
	if a == nil {
		a = &account{}
		g.runs[l.RunID] = a
	}
	atOnce := l.Ceiling.AtOnce
	if atOnce <= 0 {
		atOnce = g.limits.RunRequests
	}
	if a.running >= atOnce {
		return &route.Refusal{Status: 429, Reason: route.ReasonLimit, Message: "expected at most " + strconv.FormatInt(atOnce, 10) + " requests of this run at once"}
	}
	if g.running >= g.limits.Requests {
		return overloaded("requests")
	}
	for _, c := range []struct {
		what          string
		used, ceiling int64
	}{
		// Those that run count: else as many as one likes begin below the ceiling.
		{"requests", a.used.Requests + a.running, l.Ceiling.Requests},
		{"input tokens", a.used.InputTokens, l.Ceiling.InputTokens},
		{"output tokens", a.used.OutputTokens, l.Ceiling.OutputTokens},
	} {
		if c.ceiling > 0 && c.used >= c.ceiling {
			return &route.Refusal{Status: 429, Reason: route.ReasonCeiling, Message: "this run has used up its " + strconv.FormatInt(c.ceiling, 10) + " " + c.what}
		}
	}
	a.running++
	g.running++
	return nil
}

func overloaded(of string) error {
	return &route.Refusal{Status: 503, Reason: route.ReasonLimit, Message: "the model gateway has too many " + of + " at once"}
}

// hold takes n bytes of a body into memory, as they come: what is announced and
// not sent takes nothing from anybody. A negative n gives back.
// Errors: *route.Refusal 503, where the run or the gateway holds too many.
func (g *ledger) hold(l Lease, n int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.runs[l.RunID]
	share := max(g.limits.HeldBytes/8, g.limits.BodyBytes)
	if n > 0 && (a.held+n > share || g.held+n > g.limits.HeldBytes) {
		return overloaded("bytes of requests")
	}
	a.held += n
	g.held += n
	return nil
}

// end closes it.
func (g *ledger) end(l Lease, u Usage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.runs[l.RunID]
	a.running--
	g.running--
	a.used.add(u)
}

// Usage is what a run has used up to now, by requests that have ended.
func (g *Gateway) Usage(runID string) Usage {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	if a := g.ledger.runs[runID]; a != nil {
		return a.used
	}
	return Usage{}
}

// Forget drops the account of a run that has no request running, and answers
// what it had used and whether it was dropped. Its ceilings begin anew, so its
// lease is revoked first.
func (g *Gateway) Forget(runID string) (Usage, bool) {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	a := g.ledger.runs[runID]
	if a == nil {
		return Usage{}, true
	}
	if a.running > 0 {
		return a.used, false
	}
	delete(g.ledger.runs, runID)
	return a.used, true
}
