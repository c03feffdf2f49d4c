package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// say prints one line of the report: what was tried and what came of it.
func say(what string, err error) {
	result := "ok"
	if err != nil {
		result = err.Error()
	}
	fmt.Println(what + ": " + result)
}

// inherited names every descriptor above the standard three that a fresh
// command was born with.
func inherited() {
	// os.ReadDir would be in the list with a descriptor of its own.
	for fd := 3; fd < 4096; fd++ {
		if target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil && !runtimeOwn(target) {
			fmt.Println("inherited " + strconv.Itoa(fd) + " " + target)
		}
	}
}

// runtimeOwn says whether a descriptor is of this program's own runtime.
func runtimeOwn(target string) bool {
	return strings.Contains(target, "eventpoll") || strings.Contains(target, "eventfd")
}

// namespaced starts itself as root of a user and a mount namespace of its own,
// if it can, and from there tries what a plain workload may not.
func namespaced(sealed string) {
	child := exec.Command("/proc/self/exe", "inside", sealed)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	say("namespace", child.Run())
	inside(sealed) // and once more without one
}

func inside(sealed string) {
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0)
	say("escape setgroups", asError(errno))
	unix.Mount("", sealed, "", unix.MS_REMOUNT|unix.MS_BIND, "")
	unix.Mount("", sealed, "", unix.MS_REMOUNT, "")
	say("escape remount", os.WriteFile(filepath.Join(sealed, "owned"), nil, 0o644))
	unix.Mount(sealed, sealed, "", unix.MS_BIND|unix.MS_REC, "")
	unix.Mount("", sealed, "", unix.MS_REMOUNT|unix.MS_BIND, "")
	say("escape rebind", os.WriteFile(filepath.Join(sealed, "owned"), nil, 0o644))
	unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	unix.Mount("", "/", "", unix.MS_REMOUNT, "")
	say("escape root", os.WriteFile("/etc/owned", nil, 0o644))
	say("escape init", os.WriteFile("/run/checkfu/init", []byte("x"), 0o755))
	say("escape ptrace init", unix.PtraceAttach(1))
	say("escape memory of init", func() error {
		f, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		return err
	}())
	_, err := os.ReadFile("/proc/1/environ")
	say("escape environment of init", err)
	_, err = os.ReadDir("/proc/1/fd")
	say("escape descriptors of init", err)
	if pid, err := unix.PidfdOpen(1, 0); err == nil {
		_, err = unix.PidfdGetfd(pid, 3, 0)
		say("escape socket of init", err)
	}
	say("escape chown", func() error {
		if err := os.WriteFile("/tmp/chowned", nil, 0o644); err != nil {
			return err
		}
		return os.Chown("/tmp/chowned", 1, 1)
	}())
	say("escape device", unix.Mknod("/tmp/device", unix.S_IFBLK|0o666, 254<<8))
	for _, path := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/sys/power/state", "/proc/1/oom_score_adj", "/dev/kmsg", "/dev/mem"} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		say("escape write "+path, err)
	}
}

func asError(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// cross tries to move and link files between trees that lie on one file system
// of the host, and to climb out of them.
func cross(from, to string) {
	name := filepath.Join(from, "file")
	say("control link", os.Link(filepath.Join(to, "mine"), filepath.Join(to, "linked-mine")))
	say("escape link", os.Link(name, filepath.Join(to, "linked")))
	say("escape rename", os.Rename(name, filepath.Join(to, "renamed")))
	say("escape exchange", unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, filepath.Join(to, "mine"), unix.RENAME_EXCHANGE))
	if fd, err := unix.Open(name, unix.O_PATH, 0); err == nil {
		say("escape linkat", unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, filepath.Join(to, "linked2"), unix.AT_SYMLINK_FOLLOW))
		say("escape reopen", func() error {
			f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = f.WriteString("owned")
			}
			return err
		}())
	}
	if fd, err := unix.Open(from, unix.O_DIRECTORY, 0); err == nil {
		for _, up := range []string{"../mounts", "../../mounts", "../outputs", "../control", "../home", "../record.json"} {
			var st unix.Stat_t
			say("escape up "+up, unix.Fstatat(fd, up, &st, 0))
		}
		h, _, err := unix.NameToHandleAt(fd, ".", 0)
		if err == nil {
			_, err = unix.OpenByHandleAt(fd, h, unix.O_RDONLY)
		}
		say("escape handle", err)
	}
	if f, err := os.Open(name); err == nil {
		say("escape futimes", unix.Futimes(int(f.Fd()), []unix.Timeval{{}, {}}))
		say("escape fchmod", f.Chmod(0o777))
		say("escape setxattr", unix.Fsetxattr(int(f.Fd()), "user.x", []byte("y"), 0))
		_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		say("escape mmap", err)
	}
}

// hold takes as many of one kind of thing as it is given and keeps them.
func hold(kind string, count int) {
	got := 0
	for ; got < count; got++ {
		var err error
		switch kind {
		case "files":
			_, err = unix.Open("/dev/null", unix.O_RDONLY, 0)
		case "inotify":
			_, err = unix.InotifyInit1(0)
		case "timers":
			var id int32
			_, _, errno := syscall.RawSyscall(syscall.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptrOf(&id))
			err = asError(errno)
		case "queues":
			var name [16]byte
			copy(name[:], "q"+strconv.Itoa(got))
			_, _, errno := syscall.RawSyscall6(syscall.SYS_MQ_OPEN, uintptrOf(&name[0]), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
			err = asError(errno)
		case "locked":
			var b []byte
			if b, err = unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
				err = unix.Mlock(b)
			}
		}
		if err != nil {
			break
		}
	}
	fmt.Println(got)
	time.Sleep(time.Hour)
}

// mapped holds a file by a shared mapping alone, and after a line of standard input
// writes to it and says what it has there and what the name has.
func mapped(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Printf("%c\n", b[0])
	if _, err := os.Stdin.Read(make([]byte, 2)); err != nil {
		return err
	}
	had := b[0]
	b[0] = 'w'
	if err := unix.Msync(b, unix.MS_SYNC); err != nil {
		return err
	}
	named, err := os.ReadFile(path)
	fmt.Printf("%c%c %s", had, b[0], named)
	return err
}

// fill starts processes until it is refused one, says how many it got and
// keeps them.
func fill() {
	got := 0
	for got < 4096 {
		// No runtime of Go in the child: it takes exactly one task.
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "3600"}, &os.ProcAttr{})
		if err != nil {
			break
		}
		_ = p
		got++
	}
	fmt.Println(got)
	time.Sleep(time.Hour)
}

// burrow leaves a program running: once in the deepest namespaces it can get,
// and once plainly, in a session of its own and with every group it can drop.
func burrow(args []string) error {
	for _, flags := range []uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS, unix.CLONE_NEWUSER, 0} {
		child := exec.Command(args[0], args[1:]...)
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
		if flags != 0 {
			child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		say("burrowed", child.Start())
	}
	return nil
}
