package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/server"
)

// Opened is what a keeper keeps: a provider, and the end of what it holds for all
// its machines together.
type Opened struct {
	Provider sandbox.Provider
	Close    func() error
	// Tunnel leads to servers in the machine; nil where the provider has no way.
	Tunnel TunnelOpener
	// ReleaseLive keeps the processes in the machine too; nil where the provider cannot.
	ReleaseLive LiveReleaser
}

// Bounds of a keeper.
const (
	inputsBound   = 30 * time.Second // a starter has everything at hand
	teardownBound = 60 * time.Second // one try to end the machine
	teardownTries = 3
	pauseBound    = 10 * time.Minute // one try to keep what is in it: a full home is copied
	// The clock is looked at this often: a timer does not run while the host
	// sleeps, and the wall clock can be set.
	lookAgain = 30 * time.Second
	// resultBytes bounds the answers that are kept for callers who ask again. They
	// lie in memory, and nowhere else: what a machine without retention said is not
	// kept on a disk.
	resultBytes = 64 << 20
)

// Main is the whole life of a keeper process, which Start began: it opens the
// provider, serves it, and returns when the session has ended and its machine is
// gone. open is called after the session is on disk.
//
// A session that keeps what is in it is paused where it expires or this process gets
// SIGTERM, and ends without on SIGINT.
//
// Blocks: until the session expires, its machine is destroyed or released, or
// this process gets SIGTERM or SIGINT.
// Errors: *Error with ByHand where no starter is at the other end; what kept the
// session from beginning, which the starter is told too; a machine that could
// not be ended, whose record then stays.
func Main(ctx context.Context, open func(context.Context, Inputs) (*Opened, error)) error {
	c, err := heldCord()
	if err != nil {
		return err
	}
	defer c.Close()
	// It has no terminal of its own. Caught and not ignored: what is ignored would
	// stay so for everything that runs in the machine.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := signalled(ctx)
	defer stop()
	syscall.Umask(0o022)
	if err := closeInherited(cordFD); err != nil {
		c.fail(err)
		return err
	}
	bound, cancel := context.WithTimeout(ctx, inputsBound)
	m, err := c.hear(bound)
	cancel()
	if err == nil && m.Word != begin {
		err = fmt.Errorf("the word %q", m.Word)
	}
	if err != nil {
		return &Error{Kind: ByHand, Err: err}
	}
	return (&keeper{in: *m.Inputs, cord: c, clock: server.System}).run(ctx, open)
}

// errTerminated is the cause of a context that SIGTERM has ended: what can be kept is
// to be kept.
var errTerminated = errors.New("terminated")

// signalled is ctx until SIGTERM or SIGINT.
func signalled(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		select {
		case s := <-c:
			if s == syscall.SIGTERM {
				cancel(errTerminated)
			}
			cancel(context.Canceled)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(c); cancel(nil) }
}

// keeper is one session under way.
type keeper struct {
	in    Inputs
	cord  *cord
	clock server.Clock

	at    place
	guard *guard
	log   *journal

	mu     sync.Mutex // guards what follows
	record Record
	before *Record // as it was paused, of one that is resumed and not kept yet
	kept   bool    // its starter has kept it
	paused bool    // the record says what was kept
}

// run is Main, once it is known what for.
func (k *keeper) run(ctx context.Context, open func(context.Context, Inputs) (*Opened, error)) error {
	lock, err := k.claim(ctx)
	if err != nil {
		k.cord.fail(err)
		return err
	}
	defer lock.Close()
	err = k.keep(ctx, open)
	k.log.note(err)
	k.log.close()
	if k.guard != nil && k.guard.instance() != nil {
		err = errors.Join(err, fmt.Errorf("machine %s may still be there", k.guard.instance().InstanceID))
		k.cord.fail(err)
		return err // what is left has a record, by which it is found
	}
	err = errors.Join(err, k.leave())
	if why := k.cause(err); why != nil {
		k.cord.fail(why)
	}
	return err
}

// leave removes the session, or leaves on disk what is kept of it: what an Ending
// or a sweep then removes is the caller's to say.
func (k *keeper) leave() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.paused || k.before == nil && k.kept && k.record.Keeps():
	case k.before != nil:
		if err := k.at.write(*k.before); err != nil {
			return err
		}
	default:
		return os.RemoveAll(k.at.dir)
	}
	return k.at.quit()
}

// quit removes what only a keeper serves.
func (p place) quit() error {
	var err error
	for _, name := range []string{tokenName, socketName, tunnelName} {
		if one := os.Remove(p.file(name)); !errors.Is(one, os.ErrNotExist) {
			err = errors.Join(err, one)
		}
	}
	return err
}

// cause is what to tell a starter that still listens.
func (k *keeper) cause(err error) error {
	if err == nil && k.guard != nil {
		return k.guard.lastFailure()
	}
	return err
}

// claim puts the session on disk, before anything is allocated for it.
func (k *keeper) claim(ctx context.Context) (*os.File, error) {
	r, err := begun(Record{
		SessionID: k.in.SessionID, Provider: k.in.Provider, LeaseID: k.in.LeaseID,
		Socket: placeOf(k.in.Dir, k.in.SessionID).file(socketName), ExpiresAt: k.in.ExpiresAt, Model: k.in.Model, Registries: k.in.Registries,
		KeepMillis: k.in.KeepMillis, Live: k.in.Live,
	}, k.clock.Now())
	if err != nil {
		return nil, err
	}
	k.record = r
	if k.in.Resume {
		return k.takeUp(ctx)
	}
	at, lock, err := claim(k.in.Dir, k.record)
	if err != nil {
		return nil, err
	}
	k.at = at
	k.log = openJournal(at.file(logName))
	return lock, nil
}

// takeUp is claim for a session that is there, paused. It is as old as it was.
func (k *keeper) takeUp(ctx context.Context) (*os.File, error) {
	h, err := Hold(ctx, k.in.Dir, k.in.SessionID)
	if err != nil {
		return nil, err
	}
	k.record.CreatedAt, k.record.Instance, k.record.Snapshot = h.Record.CreatedAt, h.Record.Instance, h.Record.Snapshot
	if unkept(h.Record).State != StatePaused {
		err = &Error{Kind: Refused, SessionID: k.in.SessionID, Err: errNotPaused}
	} else {
		// A paused one that was being resumed when its keeper was killed says so still.
		h.Record.State = StatePaused
		err = errors.Join(h.at.quit(), h.at.write(k.record))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	k.before, k.at = &h.Record, h.at
	k.log = openJournal(h.at.file(logName))
	return h.lock, nil
}

var errNotPaused = errors.New("it is not paused")

// keep opens, serves and ends. When it returns the machine is gone, or
// guard.instance names it.
func (k *keeper) keep(ctx context.Context, open func(context.Context, Inputs) (*Opened, error)) (err error) {
	// A caller that began to wait for the token file would find it whole.
	token := newToken()
	if err := k.at.replace(tokenName, []byte(token+"\n")); err != nil {
		return err
	}
	opened, err := open(ctx, k.in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	tokens, err := wire.NewTokens(token)
	if err != nil {
		return err
	}
	k.guard = newGuard(opened.Provider, k.in, k.holds, k.log.note)
	k.guard.settled, k.guard.leaving, k.guard.left = k.settled, k.leaving, k.left
	asked := &tunnels{tokens: tokens, instance: k.guard.instance, open: opened.Tunnel, log: k.log.note}
	if k.in.Live && opened.ReleaseLive != nil {
		k.guard.liveReleaser, asked.live = opened.ReleaseLive, k.guard.releaseLive
	}
	present := &presence{tokens: tokens, clock: k.clock, process: k.guard.process, log: k.log.note, changed: make(chan struct{}, 1)}
	k.guard.changed = present.look
	srv, err := server.New(server.Options{
		Provider: k.guard, Authenticate: present.admit, Clock: k.clock, ResultBytes: resultBytes, Log: k.log.note,
		// Who is slow is a person behind a pager, and who is gone is noticed by presence.
		HoldOutput: true, Stall: time.Hour,
	})
	if err != nil {
		return err
	}
	l, done, err := k.listen(ctx)
	if err != nil {
		return errors.Join(err, srv.Close(ctx))
	}
	defer done()
	serving, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	tunnelled, err := k.serveTunnels(serving, asked)
	if err != nil {
		return errors.Join(err, l.Close(), srv.Close(ctx))
	}
	defer tunnelled()
	defer leave()
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, l, srv, nil) }()
	var watching sync.WaitGroup
	watching.Go(func() { present.watch(serving) })
	defer watching.Wait()
	defer leave()

	err = k.cord.say(said{Word: ready})
	if err == nil {
		var pause bool
		if pause, err = k.wait(ctx, served); pause {
			err = errors.Join(err, k.pause(ctx))
		}
	}
	// The machine first: what runs in it then ends, and the server has nothing to
	// wait for. And again after the server, which may have been making one.
	err = errors.Join(err, k.end(ctx))
	leave()
	select {
	case serr := <-served:
		k.log.note(serr) // a drain that was cut short: the machine was ended under it
	case <-time.After(2 * teardownBound):
		k.log.note(errors.New("the server does not end"))
	}
	return errors.Join(err, k.end(ctx))
}

// listen opens the socket. Its path may be longer than a socket's address holds,
// so it is reached through a descriptor of the directory, which done closes.
func (k *keeper) listen(ctx context.Context) (l net.Listener, done func(), err error) {
	dir, path, err := k.at.socket()
	if err != nil {
		return nil, nil, err
	}
	if l, err = server.Listen(ctx, "unix:"+path); err != nil {
		dir.Close()
		return nil, nil, err
	}
	return l, func() { dir.Close() }, nil
}

// socket is a short path of the session's socket, for as long as dir is open.
func (p place) socket() (dir *os.File, path string, err error) { return p.door(socketName) }

// door is such a path of one of its sockets.
func (p place) door(name string) (dir *os.File, path string, err error) {
	dir, err = os.OpenFile(p.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, "", err
	}
	return dir, fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name), nil
}

// wait returns when the session has to end: nil where that is in order. pause is
// whether what can be kept of it is to be kept.
func (k *keeper) wait(ctx context.Context, served chan error) (pause bool, err error) {
	life := k.left()
	hanging, stop := context.WithCancel(context.WithoutCancel(ctx))
	var listening sync.WaitGroup
	defer listening.Wait()
	defer stop()
	forsaken := make(chan struct{})
	listening.Go(func() {
		if !k.hang(hanging) {
			close(forsaken)
		}
	})
	for {
		left := k.left()
		look := min(left, lookAgain)
		if k.in.KeepMillis > 0 {
			if in := k.guard.instance(); in != nil {
				left -= ahead(life, in.Profile.ResourceLimits.DiskBytes)
				look = min(left, look)
			} else if early := left - life/10; early > 0 { // it may have one by then
				look = min(early, look)
			}
		}
		if left <= 0 {
			return true, nil
		}
		due, stop := k.clock.NewTimer(look)
		select {
		case <-due:
			// With its directory nobody reaches the machine any more.
			if _, err := os.Lstat(k.at.file(lockName)); errors.Is(err, os.ErrNotExist) {
				return false, nil
			}
		case <-k.guard.gone:
			stop()
			return false, nil
		case <-ctx.Done():
			stop()
			return errors.Is(context.Cause(ctx), errTerminated), nil
		case <-forsaken:
			stop()
			return false, nil
		case err := <-served:
			stop()
			served <- err // for who waits for it
			return true, errors.Join(errors.New("the server ended"), err)
		}
	}
}

// left is how long the session lasts.
func (k *keeper) left() time.Duration {
	expires, err := k.in.ExpiresAt.Time()
	if err != nil { // the inputs are in order
		return 0
	}
	return expires.Sub(k.clock.Now())
}

// ahead is how long before its expiry a machine of so long a life and so large a
// home is paused: past it there is nothing to be kept any more, and a slow disk takes
// 64 MiB a second.
func ahead(life time.Duration, disk int64) time.Duration {
	return min(life/10, time.Minute+time.Duration(disk>>26)*time.Second)
}

// hang waits for the starter to keep the session. It is false where the starter
// is gone without.
func (k *keeper) hang(ctx context.Context) bool {
	for {
		m, err := k.cord.hear(ctx)
		switch {
		case ctx.Err() != nil:
			return true
		case err != nil || m.Word != keep:
			return false
		}
		if err := k.open(); err != nil {
			k.cord.fail(err)
			continue
		}
		if k.cord.say(said{Word: kept}) != nil {
			k.log.note(errors.New("the starter left while it was told that the session is kept"))
		}
		return true
	}
}

// open notes that the session is its callers' from now on.
func (k *keeper) open() error {
	in := k.guard.instance()
	if in == nil || in.State != sandbox.StateActive {
		return &Error{Kind: Refused, SessionID: k.in.SessionID, Err: errNotActive}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.record
	r.State, r.Instance = StateActive, in
	if err := k.at.write(r); err != nil {
		return err
	}
	k.record, k.kept, k.before = r, true, nil
	return nil
}

// holds notes the machine.
func (k *keeper) holds(in sandbox.Instance) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.record.Instance = &in
	return k.at.write(k.record)
}

// end ends the machine, however often that takes.
func (k *keeper) end(ctx context.Context) (err error) {
	for range teardownTries {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownBound)
		err = k.guard.end(bound)
		cancel()
		if err == nil {
			break
		}
		k.log.note(err)
	}
	return err
}

// newToken draws a token of 260 bits.
func newToken() string { return rand.Text() + rand.Text() }

// setCrashOutput makes the text of a crash of this program go to f.
func setCrashOutput(f *os.File) { _ = debug.SetCrashOutput(f, debug.CrashOptions{}) }
