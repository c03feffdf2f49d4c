package keeper

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server"
)

// patience is how long a live process goes on without anybody who follows its
// output. A machine has one at a time: a command whose caller was killed would
// else keep every other one out until the session ends.
const patience = 10 * time.Second

// presence lets callers in, and notices when nobody follows a process.
type presence struct {
	tokens  wire.Tokens
	clock   server.Clock
	process func() *live
	log     func(error)

	mu      sync.Mutex
	streams int
	changed chan struct{} // holds one token
}

// admit is asked of every request, before anything else. It lets in whoever
// shows the token.
// Errors: *wire.Error with TagUnauthenticated.
func (p *presence) admit(r *http.Request) error {
	token, err := wire.ParseToken(r.Header)
	if err != nil {
		return err
	}
	if !p.tokens.Accept(token) {
		return &wire.Error{Tag: wire.TagUnauthenticated}
	}
	if strings.HasSuffix(r.URL.Path, "/"+string(wire.ProcessStream)) {
		p.follow(1)
		context.AfterFunc(r.Context(), func() { p.follow(-1) }) // it ends with the request
	}
	return nil
}

func (p *presence) follow(n int) {
	p.mu.Lock()
	p.streams += n
	p.mu.Unlock()
	p.look()
}

// look makes watch look again.
func (p *presence) look() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// forsaken is the live process, where nobody follows it.
func (p *presence) forsaken() *live {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams > 0 {
		return nil
	}
	return p.process()
}

// watch ends a process that nobody has followed for a while, until ctx is done.
func (p *presence) watch(ctx context.Context) {
	for {
		l := p.forsaken()
		var due <-chan time.Time
		stop := func() bool { return true }
		if l != nil {
			due, stop = p.clock.NewTimer(patience)
		}
		select {
		case <-p.changed:
		case <-due:
			if l == p.forsaken() {
				bound, cancel := context.WithTimeout(ctx, sandbox.RollbackSeconds*time.Second)
				if err := l.Destroy(bound); err != nil {
					p.log(err)
				}
				cancel()
			}
		case <-ctx.Done():
			stop()
			return
		}
		stop()
	}
}
