package gvisor

import (
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Descriptors of init beyond its standard three.
const (
	ownerFD = 3 // its end of file is the end of the owner
	readyFD = 4 // takes one byte when init has all that it was told to begin with; see saysReady
)

// bundle writes a machine down as an OCI runtime spec.
func (d *Driver) bundle(s machine.Spec) *specs.Spec {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: s.IDBase, Size: machine.IDs}}
	net := specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: s.Netns}
	if s.Twin.HostNetwork {
		net.Path = s.Twin.Netns
	}
	out := &specs.Spec{
		Version:  specs.Version,
		Hostname: s.Hostname,
		Root:     &specs.Root{Path: s.Rootfs, Readonly: !s.Build && !s.Twin.WritableRoot},
		Process: &specs.Process{
			// Init is uid 0 without capabilities: the workload cannot kill it,
			// and it can do nothing to the workload but reap.
			User: specs.User{UID: 0, GID: 0},
			Args: []string{machine.InitPath, "init"},
			// Init only waits. Each thread more of it is a process of the host.
			Env:             []string{"PATH=/", "GOMAXPROCS=1", "CHECKFU_OWNER_FD=" + strconv.Itoa(ownerFD)},
			Cwd:             "/",
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "noexec", "mode=1777", "size=64m"}},
		},
		Linux: &specs.Linux{
			UIDMappings: ids,
			GIDMappings: ids,
			CgroupsPath: "/" + d.cgroup(s.ID),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.UserNamespace},
				net,
			},
			Resources: resources(s),
		},
	}
	if d.rootless {
		out.Linux.CgroupsPath, out.Linux.Resources = "", nil
	}
	keepNursery(s, out.Process)
	for _, f := range s.Forwards {
		out.Process.Args = append(out.Process.Args, f.String())
	}
	if saysReady(s) {
		out.Process.Env = append(out.Process.Env, guest.ReadyFDEnv+"="+strconv.Itoa(readyFD))
	}
	if !s.Twin.NoLimits {
		n := uint64(s.Limits.Processes)
		out.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NPROC", Hard: n, Soft: n}}
	}
	for _, b := range s.Binds {
		access := "rw"
		if b.ReadOnly {
			access = "ro"
		}
		out.Mounts = append(out.Mounts, specs.Mount{
			Destination: b.Destination,
			Type:        "bind",
			Source:      b.Source,
			Options:     []string{"bind", access, "nosuid", "nodev"},
		})
	}
	return out
}

// cpuPeriod is the scheduling period of CPU limits in microseconds.
const cpuPeriod = 100_000

// resources are the host's limits. The limit that a workload meets first is
// RLIMIT_NPROC inside the sentry, which refuses a fork; the host's pids limit is
// a backstop, since it ends the whole machine (see pidsLimit).
func resources(s machine.Spec) *specs.LinuxResources {
	if s.Twin.NoLimits {
		return &specs.LinuxResources{}
	}
	memory := s.Limits.MemoryBytes
	period := uint64(cpuPeriod)
	quota := max(s.Limits.CPUMillis*cpuPeriod/1000, 1000)
	limit := &specs.LinuxMemory{Limit: &memory}
	if swapCounted() {
		limit.Swap = &memory // memory and swap together: no swap on top
	}
	return &specs.LinuxResources{
		Memory: limit,
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Pids:   &specs.LinuxPids{Limit: pidsLimit(s.Limits)},
	}
}

// pidsLimit is the host's backstop behind RLIMIT_NPROC, which the sentry holds
// for the workload. It must never be met by an honest machine: a sentry that
// cannot make a thread dies, and the whole instance with it. A guest task costs
// two host tasks, one more while it is born or dies, and each command's pipes
// can block threads of the sentry: 200 commands beside a storm of orphans
// overran 2·P + 128.
func pidsLimit(l machine.Limits) int64 { return 4*l.Processes + 1024 }

// swapCounted reports whether the host can limit a cgroup's swap.
func swapCounted() bool {
	if unified() {
		return true
	}
	_, err := os.Stat(filepath.Join(cgroupRoot, "memory", "memory.memsw.limit_in_bytes"))
	return err == nil
}
