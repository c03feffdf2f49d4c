package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// instance is one running machine.
type instance struct {
	driver   *driver
	id       string
	stateDir string
	idBase   uint32
	owner    int // host id of what the workload runs as
	client   *guest.Client
	tree     string // the machine's directory in the unified hierarchy
	trees    []hierarchy
	init     int // host pid of the guest init
	pidfd    int // the same as a descriptor, for as long as the machine is ours

	paused chan struct{} // held (one token) while the machine is paused

	mu        sync.Mutex
	last      int      // number of the last command
	lingering []string // cgroups of ended commands that may hold descendants
	destroyed bool

	destroying sync.Mutex
}

// adopt finds the started init from outside, and prepares the machine's
// cgroup: the guest init starts each command inside of one, for which the
// kernel wants write access to cgroup.procs of both. No cgroup tree is mounted
// in the machine, so the permission is of no use to anything without the
// descriptor, which only the guest init ever holds.
func (m *instance) adopt(s machine.Spec) error {
	text, err := os.ReadFile(filepath.Join(bundle(m.stateDir), "pid"))
	if err != nil {
		return err
	}
	if m.init, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("runc pid file: %w", err)
	}
	if m.pidfd, err = unix.PidfdOpen(m.init, 0); err != nil {
		m.pidfd = -1
		return fmt.Errorf("guest init %d: %w", m.init, err)
	}
	pids, err := members(m.tree)
	if err != nil {
		return err
	}
	if len(pids) != 1 || pids[0] != m.init {
		return fmt.Errorf("cgroup %s: expected the guest init %d, got %v", m.tree, m.init, pids)
	}
	m.owner = int(s.IDBase) + machine.WorkloadID
	if s.Twin.RootUser {
		m.owner = int(s.IDBase)
	}
	return os.Chown(filepath.Join(m.tree, "cgroup.procs"), m.owner, m.owner)
}

func (m *instance) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pidfd >= 0 {
		// Where our process adopts orphans the ended init is left to us.
		unix.Waitid(unix.P_PIDFD, m.pidfd, nil, unix.WEXITED|unix.WNOHANG, nil)
		unix.Close(m.pidfd)
		m.pidfd = -1
	}
}

// Alive implements machine.Machine.
func (m *instance) Alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.destroyed {
		return errors.New("machine " + m.id + " was destroyed")
	}
	reason := m.client.Err()
	if reason == nil {
		fds := []unix.PollFd{{Fd: int32(m.pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n == 0 || err != nil {
			return nil
		}
		reason = errors.New("its init ended")
	}
	return fmt.Errorf("machine %s is gone: %w", m.id, reason)
}

// Specials implements machine.Machine. The walk is the host's own, by
// descriptor from the machine's root: nothing in the machine is asked.
func (m *instance) Specials(ctx context.Context, root string, limit int) ([]machine.Special, error) {
	top, err := unix.Open("/proc/"+strconv.Itoa(m.init)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("root of machine %s: %w", m.id, err)
	}
	defer unix.Close(top)
	// The number could be somebody else's by now, unless init still lives.
	if err := m.Alive(); err != nil {
		return nil, err
	}
	found, err := guest.Specials(ctx, top, root, limit)
	if err != nil {
		return nil, err
	}
	list := make([]machine.Special, 0, len(found))
	for _, s := range found {
		list = append(list, machine.Special(s))
	}
	return list, nil
}

// Destroy implements machine.Machine.
func (m *instance) Destroy(ctx context.Context) error {
	m.destroying.Lock()
	defer m.destroying.Unlock()
	m.mu.Lock()
	m.destroyed = true
	m.mu.Unlock()
	m.client.Close()
	if err := m.driver.Reap(ctx, m.id, m.stateDir); err != nil {
		return err
	}
	m.close()
	return nil
}

// newCgroup makes the cgroup of the next command.
func (m *instance) newCgroup() (dir string, file *os.File, err error) {
	m.mu.Lock()
	if m.destroyed {
		m.mu.Unlock()
		return "", nil, errors.New("machine " + m.id + " was destroyed")
	}
	m.last++
	dir = filepath.Join(m.tree, "c"+strconv.Itoa(m.last))
	err = os.Mkdir(dir, 0o755)
	m.mu.Unlock()
	if err != nil {
		return "", nil, err
	}
	if err = os.Chown(filepath.Join(dir, "cgroup.procs"), m.owner, m.owner); err == nil {
		var fd int
		if fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			return dir, os.NewFile(uintptr(fd), dir), nil
		}
	}
	unix.Rmdir(dir)
	return "", nil, err
}

// retire removes the cgroups of ended commands as they become empty.
func (m *instance) retire(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.lingering[:0]
	for _, d := range append(m.lingering, dir) {
		if unix.Rmdir(d) == unix.EBUSY {
			kept = append(kept, d)
		}
	}
	m.lingering = kept
}

// killBound is how long the kernel may take over ending processes that it was
// told to kill.
const killBound = 10 * time.Second
