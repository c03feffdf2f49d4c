// Command hostile is the workload of the driver's tests: each mode tries one
// thing that a machine must not allow, or makes one kind of trouble.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	switch os.Args[1] {
	case "refused":
		refused()
	case "storm":
		storm()
	case "bomb":
		for {
			cmd := exec.Command("/bin/hostile", "bomb")
			cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
			cmd.Start()
		}
	case "pelt":
		for {
			pelt()
		}
	case "stop-all":
		for {
			unix.Kill(-1, unix.SIGSTOP)
		}
	case "hog":
		hog()
	case "touch-init":
		touchInit()
	case "state":
		state()
	}
}

func report(name string, err error) {
	if err == nil {
		fmt.Println(name, "ok")
		return
	}
	if errno, ok := err.(unix.Errno); ok {
		fmt.Println(name, unix.ErrnoName(errno))
		return
	}
	fmt.Println(name, err)
}

// refused tries what the kernel should refuse.
func refused() {
	for _, f := range []struct {
		name         string
		family, kind int
	}{
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM}, {"alg", unix.AF_ALG, unix.SOCK_SEQPACKET},
		{"packet", unix.AF_PACKET, unix.SOCK_RAW}, {"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW},
		{"unix", unix.AF_UNIX, unix.SOCK_STREAM}, {"inet", unix.AF_INET, unix.SOCK_STREAM},
	} {
		fd, err := unix.Socket(f.family, f.kind, 0)
		if err == nil {
			unix.Close(fd)
		}
		report(f.name, err)
	}
	report("unshare-user", unix.Unshare(unix.CLONE_NEWUSER))
	report("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	for name, flag := range map[string]uint64{"clone3-user": unix.CLONE_NEWUSER, "clone3-user-net": unix.CLONE_NEWUSER | unix.CLONE_NEWNET} {
		args := struct{ flags, pidfd, child, parent, exit, stack, size, tls, set, setSize, cgroup uint64 }{flags: flag, exit: uint64(unix.SIGCHLD)}
		pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
		if errno == 0 && pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		if errno != 0 {
			report(name, errno)
		} else {
			report(name, nil)
		}
	}
	call := func(name string, nr uintptr, args ...uintptr) {
		var a [4]uintptr
		copy(a[:], args)
		if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], 0, 0); errno != 0 {
			report(name, errno)
		} else {
			report(name, nil)
		}
	}
	call("clone-user", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
	call("keyctl", unix.SYS_KEYCTL, 0, 0)
	call("bpf", unix.SYS_BPF, 0, 0, 0)
	call("userfaultfd", unix.SYS_USERFAULTFD, 0)
	call("io_uring", unix.SYS_IO_URING_SETUP, 1, 0)
	call("perf", unix.SYS_PERF_EVENT_OPEN, 0, 0)
	report("write-max-user-ns", unwrap(os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("9"), 0)))
	report("write-root", unwrap(os.WriteFile("/made", nil, 0o600)))
	report("mknod-device", unix.Mknod("/tmp/null", unix.S_IFCHR|0o600, 1<<8|3))
}

func unwrap(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}

// touchInit tries to reach PID 1.
func touchInit() {
	_, err := os.ReadDir("/proc/1/fd")
	report("fd", unwrap(err))
	_, err = os.Open("/proc/1/mem")
	report("mem", unwrap(err))
	_, err = os.ReadFile("/proc/1/environ")
	report("environ", unwrap(err))
	report("ptrace", unix.PtraceAttach(1))
	pidfd, err := unix.PidfdOpen(1, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(pidfd, 3, 0)
	}
	report("getfd", err)
	for s := unix.Signal(1); s < 65; s++ {
		unix.Kill(1, s)
	}
	for range 1000 {
		unix.Kill(1, unix.SIGKILL)
	}
	report("prlimit", unix.Prlimit(1, unix.RLIMIT_CPU, &unix.Rlimit{}, nil))
	pelt()
	report("own-fds", ownFDs())
}

// pelt sends every signal in every way to every thread of PID 1. Queued signals
// carry a cause of the sender's choice.
func pelt() {
	pidfd, _ := unix.PidfdOpen(1, 0)
	defer unix.Close(pidfd)
	tasks, _ := filepath.Glob("/proc/1/task/*")
	for _, task := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(task))
		for s := 1; s < 65; s++ {
			info := [16]uint64{uint64(s), 0xffffffff} // si_code SI_QUEUE
			unix.Tgkill(1, tid, unix.Signal(s))
			unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(tid), uintptr(s), uintptr(unsafe.Pointer(&info)))
			unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, 1, uintptr(tid), uintptr(s), uintptr(unsafe.Pointer(&info)), 0, 0)
			unix.Syscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(pidfd), uintptr(s), uintptr(unsafe.Pointer(&info)), 0, 0, 0)
		}
	}
}

// ownFDs fails if anything but the three streams was inherited. The runtime
// opens its own at the end.
func ownFDs() error {
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if n, _ := strconv.Atoi(filepath.Base(fd)); err == nil && n > 2 && to[0] == 's' {
			return fmt.Errorf("holds %s", to)
		}
	}
	return nil
}

// state prints what a command was started with.
func state() {
	status, _ := os.ReadFile("/proc/self/status")
	os.Stdout.Write(status)
	sid, _ := unix.Getsid(0)
	fmt.Println("Sid:", sid == os.Getpid())
	adj, _ := os.ReadFile("/proc/self/oom_score_adj")
	fmt.Printf("Oom: %s", adj)
	cg, _ := os.ReadFile("/proc/self/cgroup")
	os.Stdout.Write(cg)
}

// storm leaves orphans for PID 1 until it is killed: each one a fork of a fork
// that exits with a status of its own.
func storm() {
	fmt.Println("storming")
	for i := 0; ; i++ {
		exec.Command("/bin/busybox", "sh", "-c", "(exit "+strconv.Itoa(i%250)+") & (sh -c 'exit 7' &) & exit 3").Run()
	}
}

// hog takes memory until it is stopped.
func hog() {
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
		if len(all) > 4096 {
			time.Sleep(time.Hour)
		}
	}
}
