package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/launch"
)

// What a program of the workload does, by its first argument.
const (
	hostileDial = "dial" // lists links and connects
	hostileLook = "look" // tries to look into a process
	hostileWait = "wait" // lives until its standard input ends
)

// look says of each way into a process whether it is open.
func look(pid string) int {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return 1
	}
	for _, way := range []struct {
		name string
		try  func() error
	}{
		{"mem", func() error { return opens("/proc/" + pid + "/mem") }},
		{"environ", func() error { return opens("/proc/" + pid + "/environ") }},
		{"fd", func() error { _, err := os.ReadDir("/proc/" + pid + "/fd"); return err }},
		{"trace", func() error {
			_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(n), 0, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		}},
		{"readv", func() error {
			b := make([]byte, 8)
			local := []unix.Iovec{{Base: &b[0], Len: 8}}
			_, err := unix.ProcessVMReadv(n, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
			if errors.Is(err, unix.EFAULT) {
				return nil // it may read, and there is nothing
			}
			return err
		}},
	} {
		if way.try() == nil {
			fmt.Println("open", way.name)
		}
	}
	return 0
}

func opens(path string) error {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

// as runs this binary as a program of the user that the guard has: nobody else
// of the workload's kind has more.
func as(ctx context.Context, stdin io.Reader, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = hostileName
	cmd.Env, cmd.Stdin = []string{}, stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: launch.GuardUID, Gid: launch.GuardUID}}
	cmd.WaitDelay = time.Second
	return cmd
}

// noLooking holds that even the guard's own user has no way into it, and that it
// has one into a process of its own that does not close itself.
func noLooking(t *trial) error { return t.noLookingInto(t.guard.pid) }

func (t *trial) noLookingInto(pid int) error {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	out, err := as(ctx, nil, hostileLook, strconv.Itoa(pid)).Output()
	if err != nil {
		return blind(fmt.Errorf("look into the guard: %w", err))
	}
	if len(out) > 0 {
		return fmt.Errorf("ways into the guard: %q", out)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return blind(err)
	}
	for line := range strings.Lines(string(limits)) {
		// One byte is none, and also keeps the kernel from a program that takes
		// cores, which none would not.
		if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && (len(f) < 6 || f[5] != "0" && f[5] != "1") {
			return fmt.Errorf("the guard may leave a core: %s", line)
		}
	}
	return openTwin(ctx)
}

func openTwin(ctx context.Context) error {
	life, ours, err := os.Pipe()
	if err != nil {
		return blind(err)
	}
	defer life.Close()
	twin := as(ctx, life, hostileWait)
	out, err := twin.StdoutPipe()
	if err == nil {
		err = twin.Start()
	}
	if err != nil {
		ours.Close()
		return blind(err)
	}
	defer func() {
		ours.Close()
		twin.Wait()
	}()
	// It has executed once it speaks.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return blind(err)
	}
	ways, err := as(ctx, nil, hostileLook, strconv.Itoa(twin.Process.Pid)).Output()
	if err != nil || !strings.Contains(string(ways), "open environ") {
		return blind(fmt.Errorf("the control finds no way into an open process: %q: %w", ways, err))
	}
	return nil
}
