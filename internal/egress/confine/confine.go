package confine

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Needs is what a process keeps. The zero value keeps nothing at all.
type Needs struct {
	// Descriptors are the inherited ones that stay open. Every other inherited one
	// is closed, 0 to 2 as well; what this process opened itself stays.
	Descriptors []int
	// Files is how many descriptors may be open at once; at least MinFiles.
	Files int
	// UID and GID are who to become, both above 0. A process that was not started
	// as root stays who it is and leaves them 0.
	UID, GID int
	// Ports are the TCP ports that it may connect to, at any address. None is
	// none. The kernel holds this from Landlock's fourth version on.
	Ports []uint16
	// Unix says that it makes UNIX stream sockets, to connect to a socket file.
	Unix bool
	// NoLandlock says that the launcher knows this kernel to be without Landlock.
	// A kernel that has it applies it nevertheless.
	NoLandlock bool
}

// MinFiles is the least number of descriptors that a Go network server can do
// with: streams, listener, log, the poller's and a few connections.
const MinFiles = 32

// Error is a step that could not be taken. The process must end.
type Error struct {
	Step     string // one of the names in steps
	Expected string
	Got      string
}

// Error is one line.
func (e *Error) Error() string {
	return "confine: " + e.Step + ": expected " + e.Expected + ", got " + e.Got
}

// step is one thing that a process does to itself.
type step struct {
	name string
	take func(Needs) error
}

// steps in their order. The environment comes first, because a secret in it is
// in memory already and no later step takes it out again. What needs the power
// of root comes before it is given up; a change of user makes a process
// dumpable or not as the host is set, so that is said after it; seccomp comes
// last, because it forbids every other step.
var steps = []step{
	{"environment", environment},
	{"descriptors", descriptors},
	{"core", core},
	{"files", files},
	{"no_new_privs", noNewPrivileges},
	{"identity", identity},
	{"dumpable", undumpable},
	{"landlock", landlock},
	{"seccomp", seccomp},
}

// Self confines this process, for good.
// Errors: *Error; the process must end then.
func Self(n Needs) error { return perform(n, steps) }

func perform(n Needs, steps []step) error {
	for _, s := range steps {
		if err := s.take(n); err != nil {
			return err
		}
	}
	return nil
}

// Notes are what a process that Self has confined can say of it, in the order of
// the steps: its user and the version of Landlock, "none" where it goes without.
// They are known before, because a log may have to be made before.
func Notes(n Needs) []string {
	uid, version := n.UID, "none"
	if uid == 0 {
		uid = os.Geteuid()
	}
	if v, err := landlockQuery(unix.LANDLOCK_CREATE_RULESET_VERSION); err == nil {
		version = strconv.Itoa(v)
	}
	return []string{"user " + strconv.Itoa(uid), "landlock " + version, "seccomp " + arch}
}

// environment refuses one that is not empty. Clearing it would be a lie: the
// runtime has copied it, and the kernel shows what the process began with.
func environment(Needs) error {
	if env := os.Environ(); len(env) > 0 {
		// A name may be logged, a value is perhaps what must not be here.
		name, _, _ := strings.Cut(env[0], "=")
		return &Error{"environment", "none", strconv.Itoa(len(env)) + " variables, the first is " + strconv.Quote(name)}
	}
	return nil
}

// core lets no crash be written. The limit is 1 and not 0: a host that pipes
// dumps to a program ignores every limit but this one, and no file begins with
// one byte.
func core(Needs) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		// A hard limit of 0 cannot be raised again by a process without power.
		if err = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
			return &Error{"core", "RLIMIT_CORE of 1 or 0", err.Error()}
		}
	}
	return nil
}

// files bounds the descriptors, so that a flood ends in a refusal here and not
// in an exhausted host.
func files(n Needs) error {
	want := uint64(n.Files)
	if n.Files < MinFiles {
		return &Error{"files", "at least " + strconv.Itoa(MinFiles), strconv.Itoa(n.Files)}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want}); err != nil {
		return &Error{"files", "RLIMIT_NOFILE of " + strconv.Itoa(n.Files), err.Error()}
	}
	return nil
}

// undumpable closes this process to others of its user: no ptrace, no memory, no
// list of descriptors, no core.
func undumpable(Needs) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &Error{"dumpable", "PR_SET_DUMPABLE 0", err.Error()}
	}
	return nil
}
