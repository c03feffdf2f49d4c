package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// A live pause keeps the processes of a session's machine too. The contract has no word
// for it, so it is asked for beside the wire, on the socket of the tunnels:
//
//	TOKEN live UNTIL    ok, once the session is paused, kept until then
//	                    no WHY; it goes on as it was
//
// The keeper ends after that, as after any pause.
const liveWord = "live"

// LiveReleaser releases an instance with its processes. Where that cannot be, it is as
// it was.
type LiveReleaser func(ctx context.Context, id sandbox.InstanceID, r sandbox.ReleaseRequest) (sandbox.Handoff[sandbox.Released], error)

// PauseLive pauses the session with the processes in its machine, to be kept until then.
//
// Blocks: until it is paused, or is not, or ctx is done; not longer than a pause may
// take.
// Errors: *Error with NotLive, and why; ctx's, after which it may be paused all the same.
func (s *Session) PauseLive(ctx context.Context, until sandbox.Timestamp) error {
	ctx, cancel := context.WithTimeout(ctx, pauseBound+tunnelBound)
	defer cancel()
	no := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Error{Kind: NotLive, SessionID: s.Record.SessionID, Err: err}
	}
	token, err := placeOf(s.stateDir, s.Record.SessionID).read(tokenName)
	if err != nil {
		return no(err)
	}
	c, err := s.dialTunnels(ctx)
	if err != nil {
		return no(err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := fmt.Fprintf(c, "%s %s %s\n", strings.TrimSpace(string(token)), liveWord, until); err != nil {
		return no(err)
	}
	line, err := readLine(c, maxTunnelSay)
	if err != nil {
		return no(fmt.Errorf("its keeper does not answer: %w", err))
	}
	if line == "ok" {
		return nil
	}
	why, refused := strings.CutPrefix(line, "no ")
	if !refused {
		why = "its keeper's answer cannot be read"
	}
	return no(errors.New(why))
}

// parseLiveAsk reads TOKEN live UNTIL, and reports whether a line is one. Whether the
// token is one is not looked at.
func parseLiveAsk(line string) (token string, until sandbox.Timestamp, ok bool) {
	token, rest, _ := strings.Cut(line, " ")
	word, at, _ := strings.Cut(rest, " ")
	until = sandbox.Timestamp(at)
	return token, until, token != "" && word == liveWord && until.Valid()
}

// pauseLive answers one that asks for a live pause.
func (t *tunnels) pauseLive(ctx context.Context, c net.Conn, token string, until sandbox.Timestamp) {
	switch {
	case !t.tokens.Accept(token):
		refuse(c, "the token is not this session's")
		return
	case t.live == nil:
		refuse(c, "it is not live: checkfu session start --live makes one that is")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pauseBound)
	defer cancel()
	_ = c.SetDeadline(time.Now().Add(pauseBound + tunnelBound))
	// Told before the session ends with its machine, and this connection with it.
	told := func() { _, _ = c.Write([]byte("ok\n")) }
	if err := t.live(ctx, until, told); err != nil {
		t.log(fmt.Errorf("live pause: %w", err))
		refuse(c, err.Error())
		return
	}
	_ = c.Close()
}

// releaseLive is Release with the processes of the machine. Nothing is asked to end.
func (g *guard) releaseLive(ctx context.Context, until sandbox.Timestamp, told func()) error {
	in := g.instance()
	if in == nil {
		return errors.New("its machine is gone")
	}
	_, err := g.release(ctx, in.InstanceID, sandbox.ReleaseRequest{ExpiresAt: until}, g.liveReleaser, told)
	return err
}
