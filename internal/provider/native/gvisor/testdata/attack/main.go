// Command attack is the hostile program that the tests run inside a machine.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	switch os.Args[1] {
	case "euid":
		fmt.Println(os.Geteuid())
	case "bomb":
		bomb()
	case "chain":
		chain()
	case "rename":
		rename(os.Args[2:])
	case "regroup":
		regroup()
	case "regroup-child":
		fmt.Println("setgroups:", syscall.Setgroups(nil))
		fmt.Println("child")
		time.Sleep(time.Hour)
	case "forks":
		forks(os.Args[2])
	case "dial":
		dial(os.Args[2])
	case "memory":
		memory()
	case "live":
		live(os.Args[2], os.Args[3])
	case "ask":
		ask()
	default:
		os.Exit(2)
	}
}

// again starts this program once more, in a session of its own.
func again(args ...string) (*exec.Cmd, error) {
	c := exec.Command("/proc/self/exe", args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c, c.Start()
}

// bomb ignores what can be ignored and fills the process limit with copies of
// itself, for ever.
func bomb() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		if _, err := again("bomb"); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// chain hops: each process starts the next and exits at once.
func chain() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	for {
		if _, err := again("chain"); err == nil {
			os.Exit(0)
		}
	}
}

// rename puts a line of its own into the process's status file.
func rename(args []string) {
	name := append([]byte("x\nGroups:\t1\n"), 0)
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, 15, uintptr(unsafe.Pointer(&name[0])), 0)
	text, err := os.ReadFile("/proc/self/status")
	fmt.Printf("renamed %v %v\n%s", errno, err, text[:min(len(text), 64)])
	time.Sleep(time.Hour)
}

// regroup tries to drop the supplementary groups inside a user namespace.
func regroup() {
	c := exec.Command("/proc/self/exe", "regroup-child")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Setsid:                     true,
		Cloneflags:                 syscall.CLONE_NEWUSER,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		GidMappingsEnableSetgroups: len(os.Args) > 2,
	}
	if err := c.Start(); err != nil {
		fmt.Println("start:", err)
		fmt.Println("child")
		os.Exit(0)
	}
	os.Exit(0)
}

// forks starts n children and prints how many it got and why no more.
func forks(n string) {
	want, err := strconv.Atoi(n)
	if err != nil {
		os.Exit(2)
	}
	for i := range want {
		c := exec.Command("/bin/sleep", "1000")
		if err := c.Start(); err != nil {
			fmt.Println(i, err)
			os.Exit(0)
		}
	}
	fmt.Println(want, "no refusal")
}

// dial prints what a Unix socket says.
func dial(path string) {
	c, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	text, err := io.ReadAll(c)
	fmt.Println(string(text))
	if err != nil {
		os.Exit(1)
	}
}

// memory touches memory until it ends.
func memory() {
	var hold [][]byte
	for {
		b := make([]byte, 16<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i>>12) | 1
		}
		hold = append(hold, b)
		_ = hold
	}
}
