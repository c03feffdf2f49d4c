package matrix

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
)

// watched is a process of egress that a provider started, as it was started.
type watched struct {
	*process
	config []byte   // the bytes that it was given
	log    *os.File // a descriptor of ours
}

// PID is its process id.
func (w *watched) PID() int { return w.pid }

// Done is closed when it has ended.
func (w *watched) Done() <-chan struct{} { return w.done }

// Stop ends it.
func (w *watched) Stop(ctx context.Context) error { return w.stop(ctx) }

// Err is nil: the matrix judges ends itself, and no Run of it asks.
func (w *watched) Err() error { return nil }

// watching is a starter whose process lives in a namespace and is kept in sight.
func watching(start starter, within *lab.Namespace, into **watched) Start {
	return func(ctx context.Context, config []byte, listener, log *os.File) (Process, error) {
		// The provider closes its own, and the file goes with the machine.
		syscall.ForkLock.RLock()
		fd, err := unix.FcntlInt(log.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		syscall.ForkLock.RUnlock()
		if err != nil {
			return nil, os.NewSyscallError("dup", err)
		}
		w := &watched{config: append([]byte{}, config...), log: os.NewFile(uintptr(fd), log.Name())}
		err = within.Do(func() (err error) {
			w.process, err = start(ctx, config, listener, log)
			return err
		})
		if err != nil {
			w.log.Close()
			return nil, err
		}
		*into = w
		return w, nil
	}
}

// opens holds what a guard has open: sockets, pipes, what its runtime waits with,
// and one file, its log.
func (w *watched) opens() error {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.pid))
	if err != nil || len(paths) == 0 {
		return blind(fmt.Errorf("descriptors of %d: %v", w.pid, err))
	}
	log, err := w.log.Stat()
	if err != nil {
		return blind(err)
	}
	sockets := 0
	for _, path := range paths {
		target, err := os.Readlink(path)
		info, _ := os.Stat(path) // by the file: a state directory may be behind a link
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return blind(err)
		case strings.HasPrefix(target, "socket:"):
			sockets++
		case strings.HasPrefix(target, "pipe:"), strings.HasPrefix(target, "anon_inode:[event"), os.SameFile(info, log):
		default:
			return fmt.Errorf("the guard has %s open", target)
		}
	}
	// Its listener, the one that leads nowhere, and both ends of the one tunnel.
	if sockets != atRest+2 {
		return fmt.Errorf("sockets of the guard: expected %d with one tunnel, got %d", atRest+2, sockets)
	}
	return nil
}

// logsLack holds that neither log has the secret.
func (r *realRun) logsLack(secret string) error {
	for what, w := range map[string]*watched{"guard": r.guard, "relay": r.relay} {
		text, err := w.said()
		if err != nil || len(text) == 0 {
			return blind(fmt.Errorf("the log of the %s: %d bytes: %v", what, len(text), err))
		}
		if bytes.Contains(text, []byte(secret)) {
			return fmt.Errorf("the token is in the log of the %s", what)
		}
	}
	return nil
}

func (w *watched) said() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(w.log, 0, maxJournal))
}

// isWhatShips holds that the guard's program is the one of this build, and that it
// enforces the bytes that were compiled, by its own first line.
func (w *watched) isWhatShips() error {
	want, err := launch.GuardProgram.Digest()
	if err != nil {
		return blind(err)
	}
	exe, err := os.Open(fmt.Sprintf("/proc/%d/exe", w.pid))
	if err != nil {
		return blind(err)
	}
	defer exe.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, exe); err != nil {
		return blind(err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("the guard's program: expected %s, got %s", want, got)
	}
	text, err := w.said()
	if err != nil {
		return blind(err)
	}
	lines, err := guard.ReadLog(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the decision log: %w", err)
	}
	if want := canonical.Digest(w.config); len(lines) == 0 || lines[0].Kind != guard.KindStart || lines[0].Config != want {
		return fmt.Errorf("the first line of the log: expected the configuration %s, got %+v", want, lines)
	}
	return nil
}

// ech is what the guard was told of an encrypted hello.
func (w *watched) ech() string {
	c, err := guard.ParseConfig(w.config)
	if err != nil {
		return ""
	}
	return c.ECH
}
