package keeper

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// Options say which session to start.
type Options struct {
	Dir       string // the state directory, absolute; it must be there
	SessionID string // "" mints one
	Provider  string // the name by which the keeper opens it
	ExpiresAt sandbox.Timestamp
	Model     string // control of the model gateway of its model route; "" is none
	// Registries is the file that says where its packages come from, absolute; "" is
	// the state directory's own.
	Registries string
	// Keep is how long what is in the machine is kept when it is paused, which is
	// also what happens when it expires or its keeper is terminated; 0 is not at all.
	Keep time.Duration
	// Live makes machines whose processes a pause can keep too (PauseLive); Keep is
	// above 0 then.
	Live bool
	// Cold resumes the files of such a session alone.
	Cold bool
	// Resume takes up a session that is paused. Where that fails it is paused still.
	Resume bool
	// Patience is how long the keeper has until it serves, and again until it has
	// answered Keep; 0 is 60 s.
	Patience time.Duration

	command []string // what is executed, and its arguments; tests set it
}

// clearBound is how long a session may take to end for a starter that has no time
// any more.
const clearBound = 10 * time.Second

// Argument is what makes this binary a keeper, as its first argument. The second
// is the session's id, for whoever reads a list of processes.
const Argument = "keeper"

// Starting is a session that hangs on its starter: it ends when that dies before
// Keep, or calls Abandon.
type Starting struct {
	*Session
	cord     *cord
	patience time.Duration
	keeping  bool // the keeper was told to keep it, and did not refuse
	resumes  bool // there is something to go back to
}

// Start starts a keeper and waits until it serves. There is no machine yet: the
// caller makes it through the Session, under its id, lease and expiry, and then
// says Keep.
//
// Blocks: until the keeper serves, says why not, or Options.Patience is over.
// Errors: *Error with Exists, Refused (in the keeper's own words) or Silent; of a
// resumption NotFound or Busy instead of Exists;
// *sandbox.Invalid for an id that is none; ctx's. After one nothing is left.
func Start(ctx context.Context, o Options) (*Starting, error) {
	if o.SessionID == "" {
		o.SessionID = NewID()
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	in := Inputs{Dir: o.Dir, SessionID: o.SessionID, Provider: o.Provider, LeaseID: mint("lea_"), ExpiresAt: o.ExpiresAt, Model: o.Model,
		Registries: o.Registries, KeepMillis: o.Keep.Milliseconds(), Live: o.Live, Cold: o.Cold, Resume: o.Resume}
	if err := in.validate(); err != nil {
		return nil, err
	}
	c, process, err := spawn(o.command, o.SessionID)
	if err != nil {
		return nil, &Error{Kind: Refused, SessionID: o.SessionID, Err: err}
	}
	bound, cancel := within(ctx, o.Patience)
	defer cancel()
	s, err := meet(bound, c, in)
	if err == nil {
		return &Starting{Session: s, cord: c, patience: o.Patience, resumes: o.Resume}, nil
	}
	c.Close()
	if !Refused.Is(err) && !Exists.Is(err) && !Busy.Is(err) && !NotFound.Is(err) {
		// It hangs. It has nothing that another process could not remove: no machine
		// is made before its starter asks for one.
		_ = process.Kill()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearBound)
		defer cancel()
		err = errors.Join(err, clear(ending, o.Dir, in))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, err
}

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errors.New("not within "+d.String()))
}

// clear ends the session of in, if there is one, and no other of its id.
func clear(ctx context.Context, dir string, in Inputs) error {
	r, err := placeOf(dir, in.SessionID).record()
	if err != nil || r.LeaseID != in.LeaseID {
		return sweepUnborn(dir) // somebody else's session, or none
	}
	if err = End(ctx, dir, in.SessionID, Ending{Settle: in.Resume}); NotFound.Is(err) {
		return nil // by itself, just now
	}
	return err
}

// meet waits for the keeper's word and calls it.
func meet(ctx context.Context, c *cord, in Inputs) (*Session, error) {
	silent := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = errors.New("it ended without a word")
		}
		return &Error{Kind: Silent, SessionID: in.SessionID, Err: err}
	}
	if err := c.say(said{Word: begin, Inputs: &in}); err != nil {
		return nil, silent(err)
	}
	m, err := c.hear(ctx)
	switch {
	case err != nil:
		return nil, silent(err)
	case m.Word == failed:
		return nil, m.failure(in.SessionID)
	case m.Word != ready:
		return nil, silent(errors.New("it said " + string(m.Word)))
	}
	// A client asks again and again, and what died meanwhile never answers: the
	// cord says so at once.
	calling, over := context.WithCancelCause(ctx)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		switch m, err := c.hear(calling); {
		case calling.Err() != nil:
		case err != nil:
			over(silent(err))
		case m.Word == failed:
			over(m.failure(in.SessionID))
		default:
			over(silent(errors.New("it said " + string(m.Word))))
		}
	}()
	var s *Session
	r, err := placeOf(in.Dir, in.SessionID).record()
	if err == nil {
		s, err = call(calling, in.Dir, r)
	}
	over(errCalled)
	<-heard
	if why := context.Cause(calling); why != errCalled && ctx.Err() == nil { //nolint:errorlint // the very one
		if err == nil {
			s.Close()
		}
		return nil, why
	}
	if err != nil {
		return nil, silent(err)
	}
	return s, nil
}

// errCalled ends the listening for the end of a keeper that was being called.
var errCalled = errors.New("it has answered, or will not")

// spawn starts a keeper, in a session of its own, with nothing of this process
// but its end of the cord.
func spawn(command []string, id string) (*cord, *os.Process, error) {
	if command == nil {
		// The very binary that runs, also where its file was replaced meanwhile. The
		// name is what it is dispatched on: it may be none of a sandbox's parts.
		command = []string{"/proc/self/exe", "checkfu", Argument, id}
	}
	ours, theirs, err := cordPair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: command[0], Args: command[1:], Dir: "/",
		Env:         environment(),
		ExtraFiles:  []*os.File{theirs}, // becomes cordFD
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil { // its standard streams are /dev/null
		ours.Close()
		return nil, nil, err
	}
	go func() { _ = cmd.Wait() }() // no zombie of a starter that lives on
	return ours, cmd.Process, nil
}

// environment is what a keeper knows of its starter's: where programs are, and
// none of its secrets.
func environment() []string {
	var env []string
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// Keep cuts the cord: the session lives on when this process ends. Its machine
// must be active.
//
// Blocks: until the keeper has answered, or Options.Patience is over. A ctx that
// is done keeps nothing; one that is done later changes nothing: the word cannot
// be taken back, only the session ended, by Abandon.
// Errors: *Error with Refused, after which it can be said again, or Silent, after
// which Abandon finds out; ctx's.
func (s *Starting) Keep(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	id := s.Record.SessionID
	s.keeping = true
	if err := s.cord.say(said{Word: keep}); err != nil {
		return &Error{Kind: Silent, SessionID: id, Err: err}
	}
	bound, cancel := within(context.WithoutCancel(ctx), s.patience)
	defer cancel()
	m, err := s.cord.hear(bound)
	switch {
	case err != nil:
		return &Error{Kind: Silent, SessionID: id, Err: err}
	case m.Word == failed:
		s.keeping = false
		return m.failure(id)
	case m.Word != kept:
		return &Error{Kind: Silent, SessionID: id, Err: errors.New("it said " + string(m.Word))}
	}
	r, err := placeOf(s.stateDir, id).record()
	if err != nil {
		return &Error{Kind: Silent, SessionID: id, Err: err}
	}
	s.Record = r
	return s.cord.Close()
}

// Abandon ends a session, kept or not, and returns when nothing of it lives; one
// that was resumed is paused again. What
// a keeper has to say that was not told to keep it is the error: why a machine
// could not be made, in words that no wire carries.
//
// Blocks: until then, or ctx is done and 10 s are over.
// Errors: *Error, of the keeper's, or with Unremovable.
func (s *Starting) Abandon(ctx context.Context) error {
	defer s.cord.Close()
	_ = s.Close()
	if half, ok := s.cord.Conn.(*net.UnixConn); ok {
		_ = half.CloseWrite()
	}
	var said, cleared error
	asked, cancel := false, func() {}
	defer func() { cancel() }()
	ask := func() { // as any session is ended
		asked = true
		if ctx.Err() != nil {
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), clearBound)
		}
		cleared = clear(ctx, s.stateDir, Inputs{SessionID: s.Record.SessionID, LeaseID: s.Record.LeaseID, Resume: s.resumes})
	}
	if s.keeping { // the cord may end it no more, and the word for that may be heard already
		ask()
	}
	for {
		m, err := s.cord.hear(ctx)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || asked && errors.Is(err, net.ErrClosed):
			return errors.Join(said, cleared)
		case err == nil && m.Word == failed:
			said = m.failure(s.Record.SessionID)
		case asked && err != nil:
			return errors.Join(said, cleared, &Error{Kind: Unremovable, SessionID: s.Record.SessionID, Err: err})
		case !asked && (err != nil || m.Word == kept):
			// The cord ends it no more, or not in time. One that is removing itself
			// right now has no record, so its end is heard besides.
			ask()
		}
	}
}
