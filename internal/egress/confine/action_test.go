package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// actions is what a confined child tries.
var actions = map[string]func(string) error{
	"nothing": func(string) error { return nil },
	"write descriptor": func(fd string) error {
		_, err := syscall.Write(number(fd), []byte("x"))
		return err
	},
	"open sockets": func(count string) error {
		for range number(count) {
			if _, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0); err != nil {
				return err
			}
		}
		return nil
	},
	"read file": func(path string) error {
		_, err := os.ReadFile(path)
		return err
	},
	"read directory": func(path string) error {
		_, err := os.ReadDir(path)
		return err
	},
	"make file": func(path string) error {
		return os.WriteFile(path, nil, 0o600)
	},
	"become root": func(string) error {
		// On this thread alone, and straight to the kernel.
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 0, 0, 0)
		return orNil(errno)
	},
	"change owner": func(path string) error { return os.Chown(path, 0, 0) },
	"bind": func(address string) error {
		// Landlock knows ports of TCP only; MPTCP, which Go prefers, is left to the
		// filter.
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		l, err := config.Listen(context.Background(), "tcp", address)
		if err == nil {
			l.Close()
		}
		return err
	},
	"connect": func(address string) error { return dial("tcp", address) },
	"connect abstract": func(name string) error {
		return dial("unix", "@"+name)
	},
	"connect file":       func(path string) error { return dial("unix", path) },
	"signal":             func(pid string) error { return syscall.Kill(number(pid), 0) },
	"every thread reads": everyThreadReads,
	"live":               live,
	"crash":              func(string) error { panic("it falls") },
	"abort": func(string) error {
		return errors.Join(unix.Kill(os.Getpid(), unix.SIGABRT), errors.New("it lives"))
	},
	"fault": func(string) error { return fault() },
	"call":  call,
	"all refused": func(numbers string) error {
		for nr := range strings.FieldsSeq(numbers) {
			if err := call(arguments(uintptr(number(nr)), []uintptr{none, none, none, none, none, none})); err != syscall.EPERM {
				return fmt.Errorf("call %s: %v", nr, err)
			}
		}
		return nil
	},
}

// fault is one of our own that is caught.
func fault() (err error) {
	defer func() {
		if recover() == nil {
			err = errors.New("no fault")
		}
	}()
	var nothing *int
	*nothing = 1
	return nil
}

// before is what an action prepares before its process is confined.
func before(action string) {
	switch action {
	case "every thread reads":
		spread()
	case "abort":
		debug.SetTraceback("crash") // or the runtime ends without a signal
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
			panic(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: l.Max, Max: l.Max}); err != nil {
			panic(err)
		}
	}
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 10*time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func orNil(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// call makes one raw system call: its number and arguments, in decimal.
func call(text string) error {
	var nr uintptr
	var args [6]uintptr
	if _, err := fmt.Sscan(text, &nr, &args[0], &args[1], &args[2], &args[3], &args[4], &args[5]); err != nil {
		panic(err)
	}
	_, _, errno := syscall.RawSyscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5])
	return orNil(errno)
}
