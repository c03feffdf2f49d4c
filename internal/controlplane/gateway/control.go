package gateway

import (
	"context"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// The control of a gateway is where leases are granted and ended: HTTP on a socket
// file that its owner alone can reach, and never on the address that requests come
// to. Bodies are canonical JSON of closed schemas.
//
//	POST /lease   Asked            a lease's terms; answers Grant, with the token
//	POST /end     Ending           ends it, and what runs of it; answers Ended
//	GET  /status                   answers Status
const (
	pathLease  = "/lease"
	pathEnd    = "/end"
	pathStatus = "/status"
)

// Bounds of the control.
const (
	maxControlBytes = 1 << 20          // of a question
	settleTime      = 10 * time.Second // for the requests of a lease that was ended to be counted
)

// Asked are the terms of a lease.
type Asked struct {
	RunID      string            `json:"run_id"`
	LeaseID    string            `json:"lease_id"`
	LeaseEpoch int64             `json:"lease_epoch"`
	ExpiresAt  sandbox.Timestamp `json:"expires_at"`
	Models     []string          `json:"models,omitempty"` // none is all
	Ceiling    Ceiling           `json:"ceiling,omitzero"`
}

// Grant is a lease as its holder gets it.
type Grant struct {
	Token   string `json:"token"`   // answered once, kept nowhere
	Gateway string `json:"gateway"` // for relays, as in relay.Config
}

// Ended is what a lease's run had used when it was ended.
type Ended struct {
	Used Usage `json:"used"`
	// Settled says that no request is under way any more, so that the counts are the
	// last.
	Settled bool `json:"settled"`
}

// Status is what a gateway says of itself.
type Status struct {
	Gateway   string        `json:"gateway"`
	Upstreams []route.Style `json:"upstreams"`
	Leases    []Leased      `json:"leases"`
}

// Leased is one lease of a Status.
type Leased struct {
	RunID      string            `json:"run_id"`
	LeaseID    string            `json:"lease_id"`
	LeaseEpoch int64             `json:"lease_epoch"`
	ExpiresAt  sandbox.Timestamp `json:"expires_at"`
	Live       bool              `json:"live"`
	Used       Usage             `json:"used"`
}

// Control grants and ends leases of one gateway. A lease ends with the process that
// asked for it, too, where the kernel tells who that is (SO_PEERPIDFD, Linux 6.5).
type Control struct {
	Gateway *Gateway
	Store   *Store // the gateway's own leases and counts
	Address string // for relays, as in relay.Config

	holders holders
}

// Ending names the epoch of a lease that its holder gives up.
type Ending struct {
	LeaseID    string `json:"lease_id"`
	LeaseEpoch int64  `json:"lease_epoch"`
}

// failure is what a question that was refused is answered with.
type failure struct {
	Error string `json:"error"`
}

// Serve answers on l, which its caller alone can reach, until ctx ends; then it
// closes l.
// Errors: the listener's, if it fails for good. nil if ctx ended.
func (c *Control) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: c, ReadHeaderTimeout: headTime, ReadTimeout: headTime, WriteTimeout: 2 * settleTime, IdleTimeout: keepTime,
		MaxHeaderBytes: MaxHeaderBytes, ErrorLog: stdlog.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, asker{}, c) },
	}
	defer c.holders.close()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = server.Shutdown(end)
	return server.Close()
}

// ServeHTTP answers one question.
func (c *Control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := c.answer(r)
	status := http.StatusOK
	if err != nil {
		status, answer = statusOf(err), failure{err.Error()}
	}
	body, err := canonical.Encode(answer)
	if err != nil { // strings and numbers
		status, body = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// noShape refuses what is none of the three questions.
var noShape = &sandbox.Invalid{Field: "request", Expected: "POST " + pathLease + ", POST " + pathEnd + " or GET " + pathStatus, Got: "another"}

func (c *Control) answer(r *http.Request) (any, error) {
	switch r.Method + " " + r.RequestURI {
	case "POST " + pathLease:
		var a Asked
		if err := question(r, &a); err != nil {
			return nil, err
		}
		end, err := a.ExpiresAt.Time()
		if err != nil {
			return nil, err
		}
		l := Lease{RunID: a.RunID, LeaseID: a.LeaseID, LeaseEpoch: a.LeaseEpoch, ExpiresAt: end, Ceiling: a.Ceiling}
		if len(a.Models) > 0 {
			l.Models = a.Models
		}
		token, err := c.Store.Grant(l)
		if err != nil {
			return nil, err
		}
		c.holders.hold(l, holderOf(r.Context()), func() { c.orphaned(l) })
		return Grant{Token: token, Gateway: c.Address}, nil
	case "POST " + pathEnd:
		var e Ending
		if err := question(r, &e); err != nil {
			return nil, err
		}
		c.holders.drop(e.LeaseID, e.LeaseEpoch)
		return c.end(r.Context(), e)
	case "GET " + pathStatus:
		return c.status(), nil
	}
	return nil, noShape
}

func question(r *http.Request, v any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxControlBytes+1))
	if err != nil || len(body) > maxControlBytes {
		return &sandbox.Invalid{Field: "body", Expected: "one of at most 1 MiB, whole", Got: "another"}
	}
	return canonical.Decode(body, v)
}

// orphaned ends a lease whose holder has ended. A newer epoch goes on.
func (c *Control) orphaned(l Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), goneBound)
	defer cancel()
	_, _ = c.end(ctx, Ending{LeaseID: l.LeaseID, LeaseEpoch: l.LeaseEpoch}) // nobody is there to be told
}

// end ends a lease and all that runs of it, and waits for its last counts.
func (c *Control) end(ctx context.Context, e Ending) (Ended, error) {
	lease, err := c.Store.find(e.LeaseID)
	if err != nil {
		return Ended{}, err
	}
	failed := c.Store.Revoke(e.LeaseID, e.LeaseEpoch)
	if _, disk := errors.AsType[*StoreError](failed); failed != nil && !disk {
		return Ended{}, failed
	}
	// A disk that fails keeps no lease alive: it is over in memory.
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	settled := c.Gateway.settle(ctx, lease.RunID)
	used, err := c.Store.Used(lease.RunID)
	return Ended{Used: used, Settled: settled}, errors.Join(failed, err)
}

func (c *Control) status() Status {
	s := Status{Gateway: c.Address, Upstreams: []route.Style{}, Leases: []Leased{}}
	for _, style := range []route.Style{route.Anthropic, route.OpenAI} {
		if _, ok := c.Gateway.upstreams[style]; ok {
			s.Upstreams = append(s.Upstreams, style)
		}
	}
	for _, g := range c.Store.List() {
		s.Leases = append(s.Leases, Leased{
			RunID: g.RunID, LeaseID: g.LeaseID, LeaseEpoch: g.LeaseEpoch, ExpiresAt: sandbox.At(g.ExpiresAt), Live: g.Live, Used: g.Used,
		})
	}
	return s
}

func statusOf(err error) int {
	_, fenced := errors.AsType[*FenceError](err)
	_, failed := errors.AsType[*StoreError](err)
	switch {
	case fenced:
		return http.StatusConflict
	case failed:
		return http.StatusInternalServerError
	case errors.Is(err, ErrNoLease), errors.Is(err, noShape):
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}
