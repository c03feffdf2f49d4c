package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// KillTree kills the program and all that descends from it and returns when
// none of them is left. It may be called again.
//
// Each pass pauses the sentry's tasks, so that nothing can fork while it looks:
// it sends SIGKILL to every process that carries the Exec's group. What was in
// the middle of a fork is caught by the next pass; a pass that finds nothing
// alive is the proof that nothing is left.
//
// Errors: ctx's; *EndedError never (an ended machine holds nothing).
func (p *process) KillTree(ctx context.Context) error {
	const first, last = time.Millisecond, 20 * time.Millisecond
	for pause := first; ; pause = min(2*pause, last) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		alive, err := p.machine.killPass(ctx, p.group)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			select {
			case <-p.machine.ended:
				return nil
			default:
			}
			if _, remote := errors.AsType[urpc.RemoteError](err); remote {
				return err
			}
			// The socket broke: nothing is left once the watcher confirms.
			if ended := p.machine.endedWithin(ctx, endBound); ended != nil && p.machine.Alive() == nil {
				return errors.Join(err, ended)
			}
			return nil
		}
		if alive == 0 {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// killPass is one pass. It returns how many processes of the group were alive.
func (m *gvisorMachine) killPass(ctx context.Context, group uint32) (alive int, err error) {
	select {
	case m.frozen <- struct{}{}:
	case <-m.ended:
		return 0, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	// Not cancelled half-way: a machine must not stay paused.
	err = within(ctx, func() error {
		defer func() { <-m.frozen }()
		n, err := m.killFrozen(group)
		alive = n
		return err
	})
	if err != nil {
		return 0, err // alive may still be written to
	}
	return alive, nil
}

func (m *gvisorMachine) killFrozen(group uint32) (alive int, err error) {
	conn, err := client.ConnectTo(m.made.Socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.Call(boot.ContMgrPause, nil, nil); err != nil {
		return 0, err
	}
	defer func() {
		if resumed := conn.Call(boot.ContMgrResume, nil, nil); resumed != nil {
			err = errors.Join(err, resumed)
		}
	}()
	var all []*control.Process
	if err := conn.Call(boot.ContMgrProcesses, &m.spec.ID, &all); err != nil {
		return 0, err
	}
	for _, q := range all {
		pid := int32(q.PID)
		if pid == 1 {
			continue
		}
		status, err := m.status(conn, pid)
		if _, remote := errors.AsType[urpc.RemoteError](err); remote {
			// It is on its way out, or the sentry will not tell: not known to
			// be dead, so another pass has to look.
			alive++
			continue
		}
		if err != nil {
			return alive, err
		}
		if status.dead || !status.in(group) {
			continue
		}
		alive++
		if err := conn.Call(boot.ContMgrSignal, m.signalArgs(pid, unix.SIGKILL), nil); err != nil {
			return alive, err
		}
	}
	return alive, nil
}

// status has the sentry read /proc/PID/status of the guest with its own eyes:
// no program of the guest takes part, and it works while all are paused.
func (m *gvisorMachine) status(conn *urpc.Client, pid int32) (guestStatus, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return guestStatus{}, err
	}
	defer read.Close()
	opts := &control.ReadOpts{
		ContainerID: m.spec.ID,
		Path:        fmt.Sprintf("/proc/%d/status", pid),
		Size:        maxStatus, // less than a pipe holds, so the sentry never blocks
		FilePayload: urpc.FilePayload{Files: []*os.File{write}},
	}
	err = conn.Call(boot.FsRead, opts, nil)
	write.Close()
	if err != nil {
		return guestStatus{}, err
	}
	text, err := io.ReadAll(io.LimitReader(read, maxStatus))
	if err != nil {
		return guestStatus{}, err
	}
	return parseStatus(text), nil
}

const maxStatus = 32 << 10

type guestStatus struct {
	dead   bool
	groups []uint32
}

func (s guestStatus) in(group uint32) bool {
	for _, g := range s.groups {
		if g == group {
			return true
		}
	}
	return false
}

// parseStatus reads a /proc/PID/status of the sentry. The last line of a name
// counts: the first line is the program's own name, printed raw, and a program
// can call itself "x\nGroups:\t1\n".
func parseStatus(text []byte) guestStatus {
	var s guestStatus
	for line := range bytes.Lines(text) {
		name, value, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(":\t"))
		if !ok {
			continue
		}
		switch string(name) {
		case "State":
			s.dead = len(value) > 0 && (value[0] == 'Z' || value[0] == 'X')
		case "Groups":
			s.groups = s.groups[:0]
			for f := range bytes.FieldsSeq(value) {
				if g, err := strconv.ParseUint(string(f), 10, 32); err == nil {
					s.groups = append(s.groups, uint32(g))
				}
			}
		}
	}
	return s
}
