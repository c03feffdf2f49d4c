// Package machine says what an isolation driver (gVisor, runc) offers the
// native provider: start one machine, run commands in it, end them exactly,
// and remove whatever a crash left behind.
//
// Trusts: the Spec, which the provider builds itself. Does not trust: anything
// that runs inside the machine.
// Ownership: the provider owns the root, the binds and the state directory of
// a machine and removes them after Destroy or Reap; the driver owns processes,
// namespaces, cgroups and runtime state.
// Concurrency: every method may be called by many goroutines at once.
// Source: contract "The operations"; concept "The enforcement statement".
package machine

import (
	"context"
	"os"
	"strconv"
)

// Rootless is the name of the driver whose machines belong to an ordinary user: those
// of "runsc", in the namespaces of package userns, where no cgroup can be had.
const Rootless = "rootless"

// IDs is the size of the block of host user and group ids that a machine's
// user namespace maps, beginning at Spec.IDBase.
const IDs = 65536

// WorkloadID is the user and group id of the workload, as the guest sees it.
const WorkloadID = 10001

// InitPath is where the guest init lies inside every machine. It is bound
// read-only by the provider as one of Spec.Binds.
const InitPath = "/run/checkfu/init"

// Spec is everything a driver needs to start one machine.
type Spec struct {
	// ID names the machine: exactly 32 lower-case hex characters. Fixed length
	// matters: runsc resolves ids by prefix.
	ID string
	// StateDir is a directory of this machine's own on the host (mode 0700) in
	// which the driver keeps what it needs to find the machine after a crash.
	StateDir string
	// Rootfs is the host path of the mounted root. It is read-only already and
	// holds every mount point that Binds and Tmpfs name.
	Rootfs string
	// Binds are host directories or files that appear inside, in mount order.
	Binds []Bind
	// Forwards are loopback ports on which the init takes connections and passes
	// each to a socket file among Binds. They listen before Start returns. With
	// one of them, and only then, the machine may connect to socket files that
	// are bound into it.
	Forwards []Forward
	// Netns is the path of a network namespace that the machine has, with all that
	// is in it; "" gives it an empty one. It must last until Start returns.
	Netns string
	// Hostname is the guest's host name.
	Hostname string
	// IDBase is the host id of guest id 0.
	IDBase uint32
	// Limits bound the whole machine.
	Limits Limits
	// Live starts a machine that can be written down with its memory and processes
	// (Checkpointer), and whose commands may leave processes behind (guest "detach").
	// A driver that is no Restorer ignores it.
	Live bool
	// Build makes it a machine that installs packages instead of one that runs an
	// agent: its root is writable, and its workload is guest root with
	// BuildCapabilities. All else holds as for any. A driver that cannot refuses.
	Build bool
	// Twin weakens the machine by named axes so that a test can show that an
	// attack works where the control is absent. Only tests set it.
	Twin Twin
}

// BuildCapabilities are those that the root of a build machine has, in its own user
// namespace: what a package manager needs to unpack files of any owner and mode,
// and to become the users that a package brings. It makes no device node, mounts
// nothing, and is no root of the host's.
func BuildCapabilities() []string {
	return []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SYS_CHROOT"}
}

// Bind is one host path that appears inside the machine.
type Bind struct {
	Source      string // host path, absolute
	Destination string // guest path, absolute
	ReadOnly    bool
}

// Forward is one TCP port of the machine's own loopback address that leads to a
// socket file.
type Forward struct {
	Port   int    // 1 to 65535
	Socket string // guest path, absolute, at most 107 bytes
}

// String is the form in which the guest init takes it.
func (f Forward) String() string { return strconv.Itoa(f.Port) + "=" + f.Socket }

// Limits are the resources of one machine. Bytes are bytes; CPU is thousandths
// of a core.
type Limits struct {
	CPUMillis   int64
	MemoryBytes int64 // what the cgroup is given: memory plus the homes, which are tmpfs
	Processes   int64 // processes of the workload
}

// Twin names the controls that a weakened test machine is started without.
type Twin struct {
	WritableRoot    bool // root_read_only off
	RootUser        bool // non_root off: the workload runs as guest uid 0
	NewPrivileges   bool // no_new_privileges off
	Capabilities    bool // capabilities_dropped off: the workload holds every guest capability
	NoLimits        bool // resource_limits off
	HostNetwork     bool // network_policy off: the machine is given a network namespace that Netns names
	Netns           string
	SharedHostProcs bool // sandbox_isolation off (runc only): the host's pid namespace
}

// Command is one program to start. Argv[0] is looked up in PATH of Env when it
// holds no slash. The files become descriptors 0, 1 and 2 of the program; they
// must be pipes or sockets, never regular files (the sentry writes those at an
// offset of its own). A nil file is /dev/null. Exec does not close them.
type Command struct {
	Argv   []string
	Env    []string // KEY=VALUE
	Dir    string   // absolute guest path
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File
}

// Exit is how a program ended: Signal is "" for an ordinary exit with Code
// 0-255, else its name ("SIGKILL") with Code 0.
type Exit struct {
	Code   int
	Signal string
}

// StartError says that a program could not be started: it does not exist, is
// not executable, or its working directory is not there. It is the caller's
// mistake, not the machine's failure.
type StartError struct {
	Path string
	Err  error
}

func (e *StartError) Error() string { return "start " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Process is one started program of the workload.
type Process interface {
	// Wait blocks until the program ended or ctx is done, and may be called
	// again by anyone: it then gives the same answer. An error other than
	// ctx's means that the machine is gone and the exit is unknown.
	Wait(ctx context.Context) (Exit, error)
	// Signal delivers SIGINT, SIGTERM or SIGKILL (by name) to the program. It
	// returns nil if the program has already ended.
	Signal(ctx context.Context, name string) error
	// KillTree kills the program and all that descends from it, however it
	// re-parented, changed session or ignored signals, and returns when none
	// of them is left. Programs started by other Exec calls are not touched.
	// It may be called again.
	KillTree(ctx context.Context) error
}

// Special is a special file that the guest sees and the host may not.
type Special struct {
	Path string // guest path, absolute
	Type string // "fifo", "socket", "device"
}

// Machine is one running machine.
type Machine interface {
	// Exec starts a command as the workload and returns once it has been
	// started (or could not be: *StartError).
	Exec(ctx context.Context, c Command) (Process, error)
	// Specials walks root as the guest sees it and names every special file
	// that is not a regular file, directory or symbolic link. At most limit
	// entries; more is an error.
	Specials(ctx context.Context, root string, limit int) ([]Special, error)
	// Observe reads back, from outside the guest, what is true of the machine.
	Observe(ctx context.Context) (Observed, error)
	// Pause takes every process of the machine out of what it waits for, and holds
	// all of them until resume is called, which may be called again. Two pauses do
	// not nest: the second waits for the first. What asks the machine for
	// something meanwhile (Exec, Signal, Specials) waits too, and KillTree may; the
	// caller keeps such calls away. A machine whose owner dies while it is paused
	// does not notice, and stays until it is reaped.
	// Errors: ctx's; that the machine is gone, or did not come to rest by then. It
	// runs in either case.
	Pause(ctx context.Context) (resume func() error, err error)
	// Alive is nil while the machine runs, else says how it ended.
	Alive() error
	// Destroy ends everything in the machine, also a paused one, and removes what
	// the driver made. It is idempotent and returns when nothing is left.
	Destroy(ctx context.Context) error
}

// Observed is what the host side can see of a running machine. A field is
// false or empty where the host cannot see it or it does not hold.
type Observed struct {
	Pids             []int    // host pids of the machine, its runtime's processes included
	UserNamespace    bool     // every one of them outside the host's user namespace, or confined as the driver documents
	PidNamespace     bool     // own pid namespace
	MountNamespace   bool     // own mount namespace
	NetNamespace     bool     // own network namespace
	Interfaces       []string // network interfaces the machine's namespace holds
	NonRoot          bool     // no process has the host's root as a user, nor guest root where the host can see who the workload is
	NoNewPrivileges  bool
	CapabilitiesZero bool // no capability outside the machine's own user namespace
	Seccomp          bool
	CgroupPaths      []string // host cgroup directories that hold all pids
	MemoryLimit      int64
	PidsLimit        int64
	CPUQuotaMillis   int64
}

// Lack is one thing that this host is missing, in plain words.
type Lack struct {
	Axis   string // enforcement axis that needs it, or "" if the driver cannot run at all
	What   string
	Remedy string
}

// Driver starts machines of one kind.
type Driver interface {
	// Name is "runsc", "runc" or Rootless.
	Name() string
	// Probe says what this host lacks. An empty answer means that every axis
	// can be enforced.
	Probe(ctx context.Context) []Lack
	// Start makes the machine and returns when its init runs. On error nothing
	// of it is left.
	Start(ctx context.Context, s Spec) (Machine, error)
	// Reap removes whatever a machine of this id and state directory left on
	// the host, working from the host alone. Idempotent; it is the crash path
	// and also the last step of every destroy.
	Reap(ctx context.Context, id, stateDir string) error
}
