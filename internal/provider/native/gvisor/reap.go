package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweepBound is how long the sweep after a failed start may take.
const sweepBound = 10 * time.Second

// Reap removes whatever a machine of this id left on the host: processes,
// cgroups, and runsc's files. It knows nothing but the id and works from /proc,
// the cgroup file system and the driver's Root; stateDir belongs to the
// provider and stays. Idempotent.
//
// Errors: *SpecError for an id of another form; ctx's, with what is left.
// Blocks: until nothing is left or ctx is done.
func (d *Driver) Reap(ctx context.Context, id, stateDir string) error {
	if !idForm.MatchString(id) {
		return &SpecError{"ID", "32 lower-case hex characters", id}
	}
	if err := d.killAll(ctx, id); err != nil {
		return err
	}
	d.bury(ctx)
	if err := removeCgroup(ctx, d.cgroup(id)); err != nil {
		return err
	}
	// Exact names only: runsc's own delete resolves ids by prefix.
	var left []error
	for _, name := range []string{
		id + "_sandbox:" + id + ".state",
		id + "_sandbox:" + id + ".lock",
		"runsc-" + id + ".sock",
	} {
		if err := os.Remove(filepath.Join(d.root, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, err)
		}
	}
	return errors.Join(left...)
}

// killAll kills until two looks in a row find nothing: a process that was being
// started during the first look has its cgroup or its command line by the next.
func (d *Driver) killAll(ctx context.Context, id string) error {
	held := map[int]*hostProcess{}
	defer func() {
		for _, p := range held {
			p.bury(ctx)
		}
	}()
	clean := 0
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids, err := d.pids(id)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			if clean++; clean == 2 {
				return nil
			}
			continue
		}
		clean = 0
		for _, pid := range pids {
			p := held[pid]
			if p == nil {
				if p, err = openProcess(pid); errors.Is(err, unix.ESRCH) {
					continue
				} else if err != nil {
					return err
				}
				held[pid] = p
				// Between the look and the pidfd the number may have passed on.
				if !d.holds(pid, id) {
					p.close()
					delete(held, pid)
					continue
				}
			}
			if err := p.kill(); err != nil {
				return fmt.Errorf("kill %d of machine %s: %w", pid, id, err)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("machine %s: %d processes left: %w", id, len(pids), context.Cause(ctx))
		}
	}
}

// pids are the live processes of a machine: what is in its cgroup, and what was
// started with both the driver's Root and the machine's id in its arguments.
// The second finds the helper before it has joined the cgroup.
func (d *Driver) pids(id string) ([]int, error) {
	found, err := cgroupPids(d.cgroup(id))
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || found[pid] {
			continue
		}
		if d.named(pid, id) {
			found[pid] = true
		}
	}
	delete(found, os.Getpid())
	var live []int
	for pid := range found {
		if !zombie(pid) {
			live = append(live, pid)
		}
	}
	return live, nil
}

// named reports whether a process's command line is one of the machine's: it
// begins as the driver's do, and holds both the Root and the id.
func (d *Driver) named(pid int, id string) bool {
	args, err := commandLine(pid)
	return err == nil &&
		bytes.Contains(args, []byte(d.root)) &&
		bytes.Contains(args, []byte(id))
}

// commandLine reads the command line of a process that calls itself a part of
// gVisor, and of any other no more than tells it apart: each look at a machine
// goes through all processes of the host.
func commandLine(pid int) ([]byte, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/cmdline"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	const name = "runsc-"
	var start [len(name)]byte
	n, err := unix.Read(fd, start[:])
	unix.Close(fd)
	if err != nil || string(start[:max(n, 0)]) != name {
		return nil, err
	}
	return os.ReadFile(path)
}

// holds reports whether a process is the machine's, by name or by cgroup.
func (d *Driver) holds(pid int, id string) bool {
	if d.named(pid, id) {
		return true
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && bytes.Contains(groups, []byte("/"+d.cgroup(id)))
}

// zombie reports whether pid has ended. A zombie holds nothing, and its parent
// alone can remove it.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The name in parentheses may itself hold any character.
	after := text[bytes.LastIndexByte(text, ')')+1:]
	return len(after) > 1 && (after[1] == 'Z' || after[1] == 'X')
}

// watch notes that a watcher reaps these pids, or has done so.
func (d *Driver) watch(on bool, pids ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pid := range pids {
		if on {
			d.watched[pid] = true
		} else {
			delete(d.watched, pid)
		}
	}
}

// bury waits for sentries and gofers that a killed helper left to this process
// and that were past their end, or nearly, before anybody saw them: such a
// process has neither cgroup nor command line. It is known by what only they
// have: a name from being this binary, and the number 1 in a pid namespace.
func (d *Driver) bury(ctx context.Context) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	self := strconv.Itoa(os.Getpid())
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue
		}
		s := parseHostStatus(text)
		if s["Name"] != "exe" || s["PPid"] != self || !strings.HasSuffix(s["NSpid"], "\t1") {
			continue
		}
		if args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err != nil || len(args) != 0 {
			continue // alive: another start's, not adopted yet
		}
		d.mu.Lock()
		watched := d.watched[pid]
		d.mu.Unlock()
		if watched {
			continue
		}
		if p, err := openProcess(pid); err == nil {
			p.bury(ctx)
		}
	}
}
