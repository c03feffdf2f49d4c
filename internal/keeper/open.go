package keeper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// Session is a session that can be called.
type Session struct {
	Record Record
	// Client is the provider with the session's machine in it. To a Runner it is
	// remote, whoever keeps it.
	Client *client.Client

	stateDir string
	dir      *os.File // through which the socket is reached
}

// Close ends the calls of this process. The session lives on.
func (s *Session) Close() error { return errors.Join(s.Client.Close(), s.dir.Close()) }

// While is ctx until the session's keeper is gone; its cause then is an *Error
// with Dead. A client alone goes on trying for as long as a session may last: it
// cannot tell a keeper that is gone from a network that is away.
func (s *Session) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond) // another process's end has no event
		defer tick.Stop()
		// Five times in a row: a keeper's last words may still be read.
		for missed := 0; missed < 5; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			l, err := look(placeOf(s.stateDir, s.Record.SessionID))
			if errors.Is(err, os.ErrNotExist) || err == nil && (!l.Keeping() || l.Damaged == nil && l.LeaseID != s.Record.LeaseID) {
				missed++
			} else {
				missed = 0
			}
		}
		cancel(&Error{Kind: Dead, SessionID: s.Record.SessionID})
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Open calls a session of the state directory dir.
//
// Blocks: until the keeper answers, ctx is done, or 30 s.
// Errors: *Error with NotFound, Unready, Paused, Dead, Damaged or Silent;
// *sandbox.Invalid for an id that is none.
func Open(ctx context.Context, dir, id string) (*Session, error) {
	l, err := Find(dir, id)
	switch {
	case err != nil:
		return nil, err
	case l.State == StateLost:
		return nil, &Error{Kind: Dead, SessionID: id}
	case l.State == StatePaused:
		return nil, &Error{Kind: Paused, SessionID: id}
	case l.Damaged != nil:
		return nil, &Error{Kind: Damaged, SessionID: id, Err: l.Damaged}
	case l.State == StateStarting:
		return nil, &Error{Kind: Unready, SessionID: id}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// A client would ask a keeper that has died meanwhile until the bound is over.
	calling, over := (&Session{Record: l.Record, stateDir: dir}).While(ctx)
	defer over()
	s, err := call(calling, dir, l.Record)
	switch {
	case err == nil:
		return s, nil
	case Dead.Is(context.Cause(calling)):
		return nil, context.Cause(calling)
	}
	return nil, &Error{Kind: Silent, SessionID: id, Err: err}
}

// call dials the keeper of r.
func call(ctx context.Context, dir string, r Record) (*Session, error) {
	at := placeOf(dir, r.SessionID)
	token, err := at.read(tokenName)
	if err != nil {
		return nil, err
	}
	held, path, err := at.socket()
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, client.Options{
		Base: "unix:" + path, Token: strings.TrimSpace(string(token)), Lease: wire.Lease{ID: r.LeaseID, Epoch: 1}, Processes: 4,
	})
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return &Session{Record: r, Client: c, stateDir: dir, dir: held}, nil
}

// Listed is one session as List finds it. Its State may be StateLost or
// StateDamaged.
type Listed struct {
	Record
	// Unborn says that its starter died before anybody was told of it.
	Unborn bool
	// CutOff says of a paused one that its resumption had begun when the keeper died,
	// and that the machine of it may be there still.
	CutOff bool
	// Damaged says why a session has no record that can be read: a dead one, or one
	// of a checkfu that writes others. Record then has an id, a state and a time.
	Damaged error
}

// Keeping is whether its keeper lives.
func (l Listed) Keeping() bool { return l.State != StateLost && l.State != StatePaused }

// Find says of one session what List says of all.
// Errors: *Error with NotFound; *sandbox.Invalid for an id that is none; the
// operating system's.
func Find(dir, id string) (Listed, error) {
	if err := CheckID(id); err != nil {
		return Listed{}, err
	}
	l, err := look(placeOf(dir, id))
	if errors.Is(err, os.ErrNotExist) {
		err = &Error{Kind: NotFound, SessionID: id}
	}
	return l, err
}

// List names the sessions of the state directory dir, in the order of their ids.
// Errors: the operating system's.
func List(dir string) ([]Listed, error) {
	entries, err := os.ReadDir(sessionsDir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, e := range entries {
		if CheckID(e.Name()) != nil {
			continue
		}
		l, err := look(placeOf(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // gone since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// look tells a live session from a dead one.
// Errors: fs.ErrNotExist where there is none, or its end is under way.
func look(at place) (Listed, error) {
	info, err := os.Lstat(at.dir)
	if err != nil {
		return Listed{}, err
	}
	lock, err := at.seize(unix.LOCK_SH)
	owned := errors.Is(err, errOwned)
	if err == nil {
		lock.Close()
	} else if !owned && !errors.Is(err, os.ErrNotExist) {
		return Listed{}, err
	}
	r, err := at.record()
	switch {
	case err == nil && !owned:
		return unkept(r), nil
	case err == nil:
		return Listed{Record: r}, nil
	case owned && errors.Is(err, os.ErrNotExist):
		return Listed{}, os.ErrNotExist // it is being removed
	}
	if again, gone := os.Lstat(at.dir); gone != nil || !os.SameFile(info, again) {
		return Listed{}, os.ErrNotExist
	}
	state := StateLost
	if owned {
		state = StateDamaged
	}
	return Listed{Record: Record{SessionID: filepath.Base(at.dir), State: state, CreatedAt: sandbox.At(info.ModTime())}, Damaged: err}, nil
}

// unkept is a session whose record nobody has in hand. What a resumption had not
// finished is paused still: it has changed nothing.
func unkept(r Record) Listed {
	starting := r.State == StateStarting
	l := Listed{Record: r, Unborn: starting && r.Snapshot == nil, CutOff: starting && r.Snapshot != nil}
	l.State = StateLost
	if r.State == StatePaused || l.CutOff {
		l.State = StatePaused
	}
	return l
}
