package runc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup tree. On a host of the old or the hybrid
// layout there are many; the unified one is there on all but the oldest, and
// is the one that machines are killed by.
type hierarchy struct {
	mount       string
	unified     bool
	controllers []string
}

// hierarchies reads which cgroup trees are mounted.
func hierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for line := range bytes.Lines(text) {
		// ID PARENT MAJ:MIN ROOT MOUNT OPTIONS [TAG ...] - TYPE SOURCE SUPER
		before, after, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 6 || len(super) < 3 {
			continue
		}
		h := hierarchy{mount: mount[4]}
		switch super[0] {
		case "cgroup2":
			h.unified = true
			names, err := os.ReadFile(filepath.Join(h.mount, "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			h.controllers = strings.Fields(string(names))
		case "cgroup":
			h.controllers = strings.Split(super[2], ",")
		default:
			continue
		}
		if !slices.ContainsFunc(all, func(o hierarchy) bool { return o.mount == h.mount }) {
			all = append(all, h)
		}
	}
	return all, nil
}

var errNoUnified = errors.New("the unified cgroup hierarchy (cgroup2) is not mounted")

// unified returns the one cgroup2 tree.
func unified(all []hierarchy) (hierarchy, error) {
	for _, h := range all {
		if h.unified {
			return h, nil
		}
	}
	return hierarchy{}, errNoUnified
}

// with returns the tree that has the controller.
func with(all []hierarchy, controller string) (hierarchy, bool) {
	for _, h := range all {
		if slices.Contains(h.controllers, controller) {
			return h, true
		}
	}
	return hierarchy{}, false
}

// kill ends every process in the cgroup2 directory and below, also those that
// fork meanwhile, and returns when none is left. A directory that is gone holds
// none.
func kill(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
		return gone(err)
	}
	return empty(ctx, dir)
}

// empty waits until the cgroup2 directory and all below hold no process.
func empty(ctx context.Context, dir string) error { return await(ctx, dir, "populated 0") }

// await waits until the kernel says so of the cgroup2 directory. One that is gone
// holds nothing that could come to be anything else.
func await(ctx context.Context, dir, state string) error {
	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return gone(err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 256)
	for pause := 1; ; pause = min(pause+1, 20) {
		n, err := f.ReadAt(buf, 0)
		if n == 0 {
			return gone(err)
		}
		if bytes.Contains(buf[:n], []byte(state)) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cgroup %s is not %q yet: %w", dir, state, err)
		}
		// The kernel reports a change as an exceptional condition, but holds a
		// report back that follows another within 10 ms; hence the short first
		// bounds. The last is for ctx.
		raw.Control(func(fd uintptr) {
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, pause)
		})
	}
}

// gone makes nothing of an error that says that the cgroup was removed.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// members lists the processes in a cgroup directory and below.
func members(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return gone(err)
		}
		if !d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return gone(err)
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("%s/cgroup.procs: %w", path, err)
			}
			pids = append(pids, pid)
		}
		return nil
	})
	return pids, err
}

// bury reaps the ended processes of a machine that are this process's children.
// runc leaves them to the nearest subreaper, and a Runner that also drives
// gVisor is one: without this each machine would leave it zombies. A zombie
// still names the cgroup it ended in, so nobody else's child is waited for. One leaves
// its cgroup a moment before it can be reaped, so each is waited for.
// Preconditions: the runc that started the machine was waited for; its cgroup is gone.
// Blocks: until they have ended, or ctx is done.
func bury(ctx context.Context, id string) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			groups, _ := os.ReadFile("/proc/" + field + "/cgroup")
			if !bytes.Contains(groups, []byte(id)) {
				continue
			}
			if pid, err := strconv.Atoi(field); err == nil {
				reap(ctx, pid)
			}
		}
	}
}

func reap(ctx context.Context, pid int) {
	for {
		ended, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if ended == pid || err != nil && err != unix.EINTR {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// remove removes a cgroup directory and all below once they hold no process,
// and kills those that they hold. For a tree without cgroup.kill this is the
// only kill, and good enough: only a runc that was cut short puts a process
// into such a tree and not into the unified one.
func remove(ctx context.Context, dir string) error {
	for {
		busy := false
		var dirs []string
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return gone(err)
			}
			if d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, d := range slices.Backward(dirs) {
			switch err := unix.Rmdir(d); err {
			case nil, unix.ENOENT:
			case unix.EBUSY, unix.ENOTEMPTY:
				busy = true
			default:
				return &os.PathError{Op: "rmdir", Path: d, Err: err}
			}
		}
		if !busy {
			return nil
		}
		pids, err := members(dir)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if pid > 1 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cgroup %s cannot be removed: %w", dir, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// readInt reads one number from a cgroup file; "max" and a missing file are 0.
func readInt(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}
