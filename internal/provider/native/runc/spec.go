package runc

import (
	"math"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// initTasks is what the guest init takes of the process limit: the kernel
// counts threads.
const initTasks = 10

// cpuPeriod is the period of the CPU quota in microseconds.
const cpuPeriod = 100_000

// socketFD is the number of the guest init's socket in the machine.
const socketFD = "3"

// ociSpec says to runc what the machine is.
func ociSpec(s machine.Spec, cgroup string) *specs.Spec {
	root := uint32(machine.WorkloadID)
	if s.Twin.RootUser {
		root = 0
	}
	spec := &specs.Spec{
		Version:  "1.0.2",
		Hostname: s.Hostname,
		Root:     &specs.Root{Path: s.Rootfs, Readonly: !s.Twin.WritableRoot},
		Process: &specs.Process{
			User:            specs.User{UID: root, GID: root},
			Args:            []string{machine.InitPath, "serve", socketFD},
			Env:             []string{"GOMAXPROCS=1", "GOGC=20", "GOTRACEBACK=none"},
			Cwd:             "/",
			NoNewPrivileges: !s.Twin.NewPrivileges,
			Capabilities:    capabilities(s.Twin.Capabilities),
			Rlimits:         rlimits(),
		},
		Mounts: mounts(s),
		Hooks: &specs.Hooks{CreateContainer: []specs.Hook{{
			// The machine's own mounts are not its root yet.
			Path: filepath.Join(s.Rootfs, machine.InitPath),
			Args: []string{"checkfu-init", "seal"},
		}}},
		Linux: &specs.Linux{
			CgroupsPath:   cgroup,
			Namespaces:    namespaces(s),
			UIDMappings:   []specs.LinuxIDMapping{{HostID: s.IDBase, Size: machine.IDs}},
			GIDMappings:   []specs.LinuxIDMapping{{HostID: s.IDBase, Size: machine.IDs}},
			Resources:     resources(s),
			Seccomp:       filter(),
			MaskedPaths:   []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	for _, f := range s.Forwards {
		spec.Process.Args = append(spec.Process.Args, f.String())
	}
	if s.Twin.SharedHostProcs {
		// The host's own /proc is bound in; paths in it are not ours to cover.
		spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil
	}
	return spec
}

// rlimits are the same on every host, unless the host itself is held to less.
func rlimits() []specs.POSIXRlimit {
	files := specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 524288}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err == nil {
		files.Hard = min(files.Hard, own.Max)
		files.Soft = min(files.Soft, files.Hard)
	}
	return []specs.POSIXRlimit{
		files, least("RLIMIT_SIGPENDING", unix.RLIMIT_SIGPENDING, pendingSignals), least("RLIMIT_MSGQUEUE", unix.RLIMIT_MSGQUEUE, queueBytes),
		// Not 0: a host that pipes core dumps to a program ignores that, and
		// would take the workload's memory out of the machine. 1 means no dump.
		{Type: "RLIMIT_CORE", Hard: 1, Soft: 1},
	}
}

// The kernel counts these by user, and adds what a machine's users have to what
// the user has who made its user namespace: the host's root, and so every other
// machine. A machine gets a small part of what there is, so that no few of them
// can take it from the others. POSIX timers count as pending signals.
const (
	pendingSignals = 1024
	queueBytes     = 96 << 10 // one queue of the default size
)

// least is limit n, or the host's own where that is lower.
func least(name string, resource int, n uint64) specs.POSIXRlimit {
	var own unix.Rlimit
	if err := unix.Getrlimit(resource, &own); err == nil {
		n = min(n, own.Max)
	}
	return specs.POSIXRlimit{Type: name, Soft: n, Hard: n}
}

func namespaces(s machine.Spec) []specs.LinuxNamespace {
	t := s.Twin
	list := []specs.LinuxNamespace{
		{Type: specs.UserNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace}, {Type: specs.NetworkNamespace, Path: s.Netns},
	}
	if t.HostNetwork {
		list[len(list)-1].Path = t.Netns
	}
	if !t.SharedHostProcs {
		list = append(list, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	return list
}

func mounts(s machine.Spec) []specs.Mount {
	proc := specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}}
	if s.Twin.SharedHostProcs {
		// A user namespace may not mount the proc of a pid namespace that is
		// not its own.
		proc = specs.Mount{Destination: "/proc", Type: "bind", Source: "/proc", Options: []string{"rbind"}}
	}
	list := []specs.Mount{
		proc,
		{Destination: "/dev", Type: "tmpfs", Source: "dev", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		// Memory, and charged as such to the machine.
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=64m"}},
	}
	for _, b := range s.Binds {
		access := "rw"
		if b.ReadOnly {
			access = "ro"
		}
		list = append(list, specs.Mount{
			Destination: b.Destination, Type: "bind", Source: b.Source,
			Options: []string{"bind", "nosuid", "nodev", access},
		})
	}
	return list
}

// capabilities is five empty sets, or for the weak twin everything.
func capabilities(all bool) *specs.LinuxCapabilities {
	names := []string{}
	if all {
		names = []string{
			"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
			"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE",
			"CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER",
			"CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
			"CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_SETFCAP",
		}
	}
	return &specs.LinuxCapabilities{Bounding: names, Effective: names, Inheritable: names, Permitted: names, Ambient: names}
}

func resources(s machine.Spec) *specs.LinuxResources {
	r := &specs.LinuxResources{Devices: devices()}
	if s.Twin.NoLimits {
		return r
	}
	l := s.Limits
	if l.MemoryBytes > 0 {
		// Equal: no swap, or the limit would not be one.
		r.Memory = &specs.LinuxMemory{Limit: &l.MemoryBytes, Swap: &l.MemoryBytes}
	}
	if l.CPUMillis > 0 && l.CPUMillis < math.MaxInt64/cpuPeriod {
		quota, period := l.CPUMillis*cpuPeriod/1000, uint64(cpuPeriod)
		r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	if l.Processes > 0 && l.Processes < math.MaxInt64-initTasks {
		limit := l.Processes + initTasks
		r.Pids = &specs.LinuxPids{Limit: limit}
	}
	return r
}

// devices denies everything but the harmless character devices. runc adds
// terminals of the machine's own devpts.
func devices() []specs.LinuxDeviceCgroup {
	list := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	for _, d := range [][2]int64{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}} {
		list = append(list, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &d[0], Minor: &d[1], Access: "rw"})
	}
	return list
}
