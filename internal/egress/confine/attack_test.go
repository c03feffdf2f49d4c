package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const attackerName = "attacker"

// attack tries everything that one process can do to read another, and says
// which ways were open.
func attack() {
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	runtime.LockOSThread()
	open := map[string]string{}
	for _, name := range []string{"mem", "environ", "maps", "auxv", "fd", "map_files", "syscall", "root", "exe", "cwd"} {
		path := fmt.Sprintf("/proc/%d/%s", pid, name)
		err := func() error {
			switch name {
			case "root", "exe", "cwd":
				_, err := os.Readlink(path)
				return err
			case "fd", "map_files":
				_, err := os.ReadDir(path)
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			if _, err = f.Read(make([]byte, 1)); errors.Is(err, syscall.EIO) || errors.Is(err, io.EOF) {
				err = nil // it could be opened: no page at 0, or an empty environment
			}
			return err
		}()
		open[name] = text(err)
	}
	var word [8]byte
	local := []unix.Iovec{{Base: &word[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&targetWord)), Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, remote, 0)
	open["process_vm_readv"] = text(err)
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(fd, 1, 0)
	}
	open["pidfd_getfd"] = text(err)
	err = syscall.PtraceAttach(pid)
	open["ptrace"] = text(err)
	if err == nil {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		_ = syscall.PtraceDetach(pid)
	}
	if err := json.NewEncoder(os.Stdout).Encode(open); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// targetWord lies at the same place in the target, which is the same binary.
var targetWord uint64

func text(err error) string {
	if err == nil {
		return "open"
	}
	return err.Error()
}

// A16: a process of the very user that a guard runs as, which is more than any
// workload is, can neither trace it, read it nor list what it holds. The twin
// left out one step, and every way is open.
func TestNobodyReadsAnEgressProcess(t *testing.T) {
	for _, c := range []struct {
		name    string
		without []string
		closed  bool
	}{
		{"confined", nil, true},
		{"without dumpable", without("dumpable"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Begun as that user: a change of user makes a process undumpable too, on
			// this kernel, and it is the step that is looked at.
			r := begin(t, order{Needs: Needs{UID: -1}, Without: c.without, Do: "nothing", Waits: true}, as(testUID))
			if r.Confined.Error != "" {
				t.Fatal(r.Confined.Error)
			}
			attacker := &exec.Cmd{Path: "/proc/self/exe", Args: []string{attackerName, fmt.Sprint(r.Process.Pid)}, Env: []string{}, Stderr: os.Stderr,
				SysProcAttr: &syscall.SysProcAttr{Credential: credential(testUID)}}
			said, err := attacker.Output()
			if err != nil {
				t.Fatal(err)
			}
			var ways map[string]string
			if err := json.Unmarshal(said, &ways); err != nil || len(ways) != 13 {
				t.Fatalf("%s: %v", said, err)
			}
			for way, got := range ways {
				if (got != "open") != c.closed {
					t.Errorf("%s: %s", way, got)
				}
			}
		})
	}
}

// A16 too: a crash writes no core, though the limit of its starter allows one.
func TestACrashLeavesNoCore(t *testing.T) {
	for _, c := range []struct {
		without []string
		dumped  bool
	}{
		{nil, false},
		{without("core"), false},     // not dumpable is enough,
		{without("dumpable"), false}, // and so is the limit
		{without("core dumpable landlock"), true},
	} {
		dir := openDir(t)
		r := begin(t, order{Needs: Needs{UID: -1}, Without: c.without, Do: "abort", Waits: true}, func(cmd *exec.Cmd) {
			as(testUID)(cmd)
			cmd.Dir = dir
		})
		_, status := r.act(t)
		if !status.Signaled() || status.CoreDump() != c.dumped {
			t.Errorf("without %q: %v, core %v", c.without, status, status.CoreDump())
		}
	}
}

func as(uid uint32) func(*exec.Cmd) {
	return func(c *exec.Cmd) { c.SysProcAttr.Credential = credential(uid) }
}

func credential(uid uint32) *syscall.Credential {
	return &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}
}
