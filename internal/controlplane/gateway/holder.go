package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// holders watch the processes that leases were granted to. A machine ends with the
// process that has it, so a lease whose asker was killed, and could not end it, is
// nobody's any more, and its token is not to be good until its expiry.
//
// A lease that was granted before the gateway began has no holder here.
// Concurrency: every method may be called at once.
type holders struct {
	mu     sync.Mutex
	of     map[string]*holder // by lease
	closed bool
	all    sync.WaitGroup
}

type holder struct {
	epoch   int64
	process *os.File // a pidfd, which can be read from once its process has ended
}

// asker is the key of a context under which a question's connection is.
type asker struct{}

// holderOf is a pidfd of the process at the other end of a question; nil where that
// cannot be told: of another kind of socket, of another pid namespace, of an older
// kernel.
func holderOf(ctx context.Context) *os.File {
	c, ok := ctx.Value(asker{}).(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	if raw.Control(func(socket uintptr) {
		if got, err := unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			fd = got
		}
	}) != nil || fd < 0 {
		return nil
	}
	if unix.SetNonblock(fd, true) != nil { // else nobody could wait for it without a thread
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// hold watches who has an epoch of a lease from now on, and calls gone if that process
// ends before the lease does. It owns process; nil is nobody. Of two epochs that were
// granted one after the other the older may come here last: it is nobody's any more.
func (h *holders) hold(l Lease, process *os.File, gone func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.of[l.LeaseID]
	superseded := old != nil && old.epoch > l.LeaseEpoch
	if old != nil && !superseded {
		h.forget(l.LeaseID, old)
	}
	if process == nil {
		return
	}
	if superseded || h.closed || process.SetReadDeadline(l.ExpiresAt) != nil {
		process.Close()
		return
	}
	if h.of == nil {
		h.of = map[string]*holder{}
	}
	one := &holder{l.LeaseEpoch, process}
	h.of[l.LeaseID] = one
	h.all.Go(func() {
		ended := awaitEnd(process)
		h.mu.Lock()
		mine := h.of[l.LeaseID] == one
		if mine {
			h.forget(l.LeaseID, one)
		}
		h.mu.Unlock()
		if ended && mine {
			gone()
		}
	})
}

// drop stops watching who has given a lease up.
func (h *holders) drop(leaseID string, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.of[leaseID]; one != nil && one.epoch <= epoch {
		h.forget(leaseID, one)
	}
}

// forget needs mu. Whoever waits for the process wakes up.
func (h *holders) forget(leaseID string, one *holder) {
	delete(h.of, leaseID)
	one.process.Close()
}

// close stops watching, and waits for what is under way.
func (h *holders) close() {
	h.mu.Lock()
	h.closed = true
	for id, one := range h.of {
		h.forget(id, one)
	}
	h.mu.Unlock()
	h.all.Wait()
}

// awaitEnd waits until a process has ended, or its pidfd is closed or at its deadline.
func awaitEnd(process *os.File) bool {
	raw, err := process.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if !errors.Is(err, unix.EINTR) {
				return n > 0
			}
		}
	})
	return err == nil
}

// goneBound is how long the requests of a lease whose holder has ended may take to be
// counted: they are cut at once.
const goneBound = settleTime + 5*time.Second
