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

// ledger knows what runs, by run. What was used is in counts.
type ledger struct {
	limits Limits
	counts Counts

	mu      sync.Mutex
	runs    map[string]*account // of the runs with a request under way
	running int64
	held    int64 // bytes of bodies
}

type account struct {
	running int64
	held    int64
	idle    chan struct{} // closed when no request of the run is left
}

// begin opens a request of a run.
// Errors: *route.Refusal: 429 at a ceiling or a limit, 503 where nobody can
// account for it.
func (g *ledger) begin(l Lease) error {
	// Not under the lock: a run whose counts wait for the disk holds up no other.
	if _, err := g.counts.Used(l.RunID); err != nil {
		return unaccounted()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Asked for again under it: what ended meanwhile runs no more, and would
	// otherwise be seen as neither.
	used := g.counts.Known(l.RunID)
	a := g.runs[l.RunID]
	if a == nil {
		a = &account{idle: make(chan struct{})}
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
		{"requests", used.Requests + a.running, l.Ceiling.Requests},
		{"input tokens", used.InputTokens, l.Ceiling.InputTokens},
		{"output tokens", used.OutputTokens, l.Ceiling.OutputTokens},
	} {
		if c.ceiling > 0 && c.used >= c.ceiling {
			return &route.Refusal{Status: 429, Reason: route.ReasonCeiling, Message: "this run has used up its " + strconv.FormatInt(c.ceiling, 10) + " " + c.what}
		}
	}
	a.running++
	g.running++
	g.runs[l.RunID] = a
	return nil
}

func unaccounted() *route.Refusal {
	return &route.Refusal{Status: 503, Reason: route.ReasonLimit, Message: "the model gateway cannot account for requests"}
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

// end closes it. What it used is counted before it is gone, so that a ceiling
// sees it as the one or the other.
func (g *ledger) end(l Lease, u Usage) {
	// Where it could not be kept, the run's next request is refused.
	_ = g.counts.Add(l.LeaseID, u)
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.runs[l.RunID]
	a.running--
	g.running--
	if a.running == 0 {
		close(a.idle)
		delete(g.runs, l.RunID)
	}
}

// idle is closed when no request of a run is under way.
func (g *ledger) idle(runID string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.runs[runID]; a != nil {
		return a.idle
	}
	none := make(chan struct{})
	close(none)
	return none
}
