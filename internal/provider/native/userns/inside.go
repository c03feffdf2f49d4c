package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// What this program calls itself on its way in.
const (
	gateName   = "checkfu-userns-gate"
	insideName = "checkfu-userns"
)

// tryOnly in the place of the arguments ends the way in where it is complete.
const tryOnly = "--checkfu-userns-try"

// lifeFD is the read end of the user's process's pipe. One byte opens the gate; the
// end of file is that process's end.
const lifeFD = 3

// Dir is a directory of memory that processes of these namespaces alone see. It covers
// one of the kernel's tables: everywhere else a person may keep files, which must not
// be hidden, and the way to their state directory is often closed to a machine's users.
const Dir = "/sys/firmware"

// failed is the exit code of the way in, that of a checkfu that could not do its work.
const failed = 125

var (
	inside bool
	owner  int
)

// Inside reports whether this process is in namespaces that Run made.
func Inside() bool { return inside }

// Owner is this process's id on the host, also inside.
func Owner() int {
	if inside {
		return owner
	}
	return os.Getpid()
}

// Dispatch must be called before anything else of main but gvisor.Dispatch. Where this
// process is on its way in, it goes on with it and ends if it cannot; else it returns
// at once.
func Dispatch() {
	switch os.Args[0] {
	case gateName:
		waitAtGate()
	case insideName:
		if err := settle(); err != nil {
			fmt.Fprintf(os.Stderr, "checkfu: %v\n", err)
			os.Exit(failed)
		}
		if len(os.Args) == 2 && os.Args[1] == tryOnly {
			os.Exit(0)
		}
		os.Args[0], inside = "checkfu", true
	}
}

// waitAtGate waits until this process's ids are mapped.
func waitAtGate() {
	var word [1]byte
	for {
		n, err := unix.Read(lifeFD, word[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			os.Exit(failed) // who started this says why
		}
		break
	}
	keepPairs()
	args := append([]string{insideName}, os.Args[1:]...)
	err := unix.Exec("/proc/self/exe", args, os.Environ())
	fmt.Fprintf(os.Stderr, "checkfu: %v\n", os.NewSyscallError("execve", err))
	os.Exit(failed)
}

// settle makes what is needed inside. The names are a person's to give, so it holds
// first that this is the place.
func settle() error {
	if m, err := os.ReadFile("/proc/self/uid_map"); err != nil || len(strings.Fields(string(m))) != 6 || os.Getpid() != 1 || os.Geteuid() != 0 {
		return &EnterError{Step: insideName, Err: errors.New("this is no namespace of checkfu")}
	}
	// The power that the last execution gave took the first signal away.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return &EnterError{Step: "prctl PR_SET_PDEATHSIG", Err: err}
	}
	life := os.NewFile(lifeFD, "life")
	unix.CloseOnExec(lifeFD)
	keepPairs()
	go func() {
		_, _ = life.Read(make([]byte, 1))
		os.Exit(failed) // the user's process is gone, also where it went before the line above
	}()
	self, err := os.Readlink("/proc/self") // of the host's /proc: the host's number
	if err == nil {
		owner, err = strconv.Atoi(self)
	}
	if err != nil {
		return &EnterError{Step: "read /proc/self", Err: err}
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"", "/", "", unix.MS_REC | unix.MS_SLAVE, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"checkfu", Dir, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0711,size=64m"},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return &EnterError{Step: strings.TrimSpace("mount " + m.kind + " on " + m.target), Err: err}
		}
	}
	// Where the host runs out of memory the kernel ends this process before others of
	// the user: homes are memory that counts for no process, and go with its mounts.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return &EnterError{Step: "become what the kernel ends first", Err: err}
	}
	return nil
}

var bound struct {
	sync.Mutex
	paths map[string]string // by the directory that was bound
	real  map[string]string // likewise, by where it is bound
}

// Bind makes dir visible below Dir, where a machine's users can pass, and returns the
// path there. It is the same for the same directory, and inside only.
// Errors: the operating system's.
func Bind(dir string) (string, error) {
	if !inside {
		return "", &EnterError{Step: "bind " + dir, Err: errors.New("not inside")}
	}
	bound.Lock()
	defer bound.Unlock()
	if path := bound.paths[dir]; path != "" {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(Dir, "state"+strconv.Itoa(len(bound.paths)))
	if err := os.Mkdir(path, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if err := unix.Mount(dir, path, "", unix.MS_BIND, ""); err != nil {
		return "", &os.PathError{Op: "bind", Path: dir, Err: err}
	}
	if bound.paths == nil {
		bound.paths, bound.real = map[string]string{}, map[string]string{}
	}
	bound.paths[dir], bound.real[path] = path, real
	return path, nil
}

// Origin is where a path below one that Bind returned lies for everybody else, without
// a symbolic link in it, and any other path itself.
func Origin(path string) string {
	bound.Lock()
	defer bound.Unlock()
	for at, real := range bound.real {
		if rest, ok := strings.CutPrefix(path, at+"/"); ok {
			return filepath.Join(real, rest)
		}
	}
	return path
}
