package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/checkfu/checkfu/sandbox"
)

// The machine around one command is three programs, all of them this one:
//
//	the provider    starts process 1 in namespaces (mount, pid, network, ipc, uts)
//	process 1       builds the root, starts the command, passes signals on, reaps;
//	                its end kills everything in the machine, whatever it is
//	the command     in a user namespace of its own: no capability, no way to gain
//	                one; it then becomes the program that was asked for
//
// Process 1 reads its order on descriptor 3. What becomes of the command goes to
// descriptor 4, a line each: "started", or "failed" with not_found or
// start_failed and why; then "exited" or "signaled" with the number. On
// descriptor 5 a byte is a signal for the command, and its end kills all: nothing
// outlives a provider that was killed.
const (
	stageMachine = "checkfu-machine"
	stageCommand = "checkfu-command"

	user = 1000 // of the command, inside

	// What package syscall has no names for.
	prSetNoNewPrivs = 38
	prCapAmbient    = 47
	capSetPcap      = 8
	capSysResource  = 24
	rlimitNproc     = 6
	waitAll         = 0
	waitNoReap      = 0x01000000
)

// order is what process 1 is to do.
type order struct {
	Root             string // an empty directory
	Binds            []bind
	Owner            int // of the command, outside
	Rootless, Linger bool
	MaxProcesses     int64
	DiskBytes        int64
	Program          sandbox.ProcessRequest
}

// bind is a directory of the instance at a path of the machine.
type bind struct {
	Source, Target string
	ReadOnly       bool
}

func machine() {
	status, control := os.NewFile(4, "status"), os.NewFile(5, "control")
	tell := func(format string, args ...any) {
		line := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
		_, _ = status.WriteString(line[:min(len(line), 4000)] + "\n") // whoever is gone needs none
	}
	for fd := 3; fd < 6; fd++ {
		syscall.CloseOnExec(fd)
	}
	var o order
	if err := gob.NewDecoder(os.NewFile(3, "order")).Decode(&o); err != nil {
		tell("failed start_failed %v", err)
		return
	}
	if err := errors.Join(build(o), syscall.Sethostname([]byte("machine")), loopback()); err != nil {
		tell("failed start_failed %v", err)
		return
	}
	child, reason, err := begin(o)
	if err != nil {
		tell("failed %s %v", reason, err)
		return
	}
	tell("started")
	reap(child, o.Linger, control, tell)
}

// begin starts the command and returns once it is the program that was asked for.
func begin(o order) (pid int, reason string, err error) {
	report, told, err := os.Pipe()
	if err != nil {
		return 0, sandbox.ReasonStartFailed, err
	}
	defer report.Close()
	// Everybody on the host reads the words of a process, but not its environment:
	// that goes through a pipe. Not as the environment of the stage, which is this
	// program and would heed GODEBUG.
	environment, given, err := os.Pipe()
	if err != nil {
		return 0, sandbox.ReasonStartFailed, errors.Join(err, told.Close())
	}
	defer given.Close()
	p := o.Program
	args := []string{stageCommand, strconv.FormatInt(o.MaxProcesses, 10), strconv.FormatInt(o.DiskBytes, 10), p.WorkingDirectory, p.Executable}
	args = append(args, p.Arguments...)
	outside := o.Owner
	if o.Rootless { // process 1 is root of a namespace in which the provider's user is 0
		outside = 0
	}
	one := []syscall.SysProcIDMap{{ContainerID: user, HostID: outside, Size: 1}}
	pid, err = syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{0, 1, 2, told.Fd(), environment.Fd()},
		Sys: &syscall.SysProcAttr{
			Setsid: true, Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one, GidMappingsEnableSetgroups: !o.Rootless,
			Credential:  &syscall.Credential{Uid: user, Gid: user, NoSetGroups: o.Rootless},
			AmbientCaps: []uintptr{capSetPcap, capSysResource}, // of its own namespace; given up before the program
		},
	})
	if err = errors.Join(err, told.Close(), environment.Close()); err != nil {
		return 0, sandbox.ReasonStartFailed, err
	}
	_ = gob.NewEncoder(given).Encode(p.Environment) // to one that failed, which it reports, in vain
	// Only the machine's programs hold its streams from here on.
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, sandbox.ReasonStartFailed, err
	}
	for fd := range 3 {
		if err := syscall.Dup3(null, fd, 0); err != nil {
			return 0, sandbox.ReasonStartFailed, err
		}
	}
	failure := make([]byte, 4096)
	n, _ := report.Read(failure)
	if n == 0 {
		return pid, "", nil
	}
	reason, why, _ := strings.Cut(string(failure[:n]), " ")
	return 0, reason, errors.New(why)
}

// reap waits for whatever lost its parent, and for the command. It returns once
// that ended, or with linger once everything has; or when control ends.
func reap(child int, linger bool, control *os.File, tell func(string, ...any)) {
	var mu sync.Mutex // so that no signal meets a number that was given anew
	over := false
	go func() {
		asked := make([]byte, 64)
		for {
			n, err := control.Read(asked)
			mu.Lock()
			for _, number := range asked[:n] {
				if !over {
					_ = syscall.Kill(child, syscall.Signal(number))
				}
			}
			mu.Unlock()
			if err != nil {
				os.Exit(0)
			}
		}
	}()
	for {
		if _, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, 0, syscall.WEXITED|waitNoReap, 0, 0); errno == syscall.ECHILD {
			return
		}
		var status syscall.WaitStatus
		mu.Lock()
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		ended := err == nil && pid == child
		over = over || ended
		mu.Unlock()
		if !ended {
			continue
		}
		if status.Signaled() {
			tell("signaled %d", int(status.Signal()))
		} else {
			tell("exited %d", status.ExitStatus())
		}
		if !linger {
			return
		}
	}
}

// command gives up what it has and becomes the program.
func command() {
	runtime.LockOSThread() // what is given up is this thread's, and exec keeps it
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	report := os.NewFile(3, "report")
	reason, err := become(os.Args[1:])
	fmt.Fprintf(report, "%s %v", reason, err)
	os.Exit(127)
}

func become(args []string) (reason string, err error) {
	reason = sandbox.ReasonStartFailed
	processes, err := strconv.ParseUint(args[0], 10, 63)
	if err != nil {
		return reason, err
	}
	disk, err := strconv.ParseUint(args[1], 10, 63)
	if err != nil {
		return reason, err
	}
	var given map[string]string
	if err := gob.NewDecoder(os.NewFile(4, "environment")).Decode(&given); err != nil {
		return reason, err
	}
	environment, argv := make([]string, 0, len(given)), args[3:]
	for key, value := range given {
		environment = append(environment, key+"="+value)
	}
	// A further user namespace would give it capabilities again.
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return reason, err
	}
	if err := errors.Join(dropCapabilities(), limit(processes, disk)); err != nil {
		return reason, err
	}
	if err := prctl(prSetNoNewPrivs, 1); err != nil {
		return reason, err
	}
	syscall.Umask(0o022)
	if err := os.Chdir(args[2]); err != nil {
		return reason, err
	}
	for _, path := range candidates(argv[0], environment) {
		switch err := syscall.Exec(path, argv, environment); err {
		case syscall.ENOENT, syscall.ENOTDIR:
		default:
			return reason, err
		}
	}
	return sandbox.ReasonNotFound, errors.New("no such program")
}

// dropCapabilities leaves none in any of the five sets.
func dropCapabilities() error {
	for capability := range uintptr(64) {
		if err := prctl(syscall.PR_CAPBSET_DROP, capability); err != nil {
			break // there are no more
		}
	}
	if err := prctl(prCapAmbient, 4); err != nil { // PR_CAP_AMBIENT_CLEAR_ALL
		return err
	}
	head := [2]uint32{0x20080522, 0} // version 3, this thread
	var none [6]uint32
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
		return errno
	}
	return nil
}

func prctl(option int, arg uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func limit(processes, disk uint64) error {
	set := func(resource int, most uint64) error {
		return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most})
	}
	return errors.Join(set(rlimitNproc, processes), set(syscall.RLIMIT_FSIZE, disk), set(syscall.RLIMIT_CORE, 0))
}

// candidates are the paths at which a program may be.
func candidates(program string, environment []string) []string {
	if strings.Contains(program, "/") {
		return []string{program}
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, entry := range environment {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	var all []string
	for directory := range strings.SplitSeq(path, ":") {
		if directory != "" {
			all = append(all, directory+"/"+program)
		}
	}
	return all
}
