package runc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Observe implements machine.Machine. Every fact is read from the host's
// kernel. A process that ends meanwhile says nothing.
func (m *instance) Observe(ctx context.Context) (machine.Observed, error) {
	if err := m.Alive(); err != nil {
		return machine.Observed{}, err
	}
	pids, err := members(m.tree)
	if err != nil {
		return machine.Observed{}, err
	}
	o := machine.Observed{
		UserNamespace: true, PidNamespace: true, MountNamespace: true, NetNamespace: true,
		NonRoot: true, NoNewPrivileges: true, CapabilitiesZero: true, Seccomp: true,
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return machine.Observed{}, err
		}
		p, err := look(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return machine.Observed{}, err
		}
		o.Pids = append(o.Pids, pid)
		o.UserNamespace = o.UserNamespace && p.own["user"]
		o.PidNamespace = o.PidNamespace && p.own["pid"]
		o.MountNamespace = o.MountNamespace && p.own["mnt"]
		o.NetNamespace = o.NetNamespace && p.own["net"]
		o.NonRoot = o.NonRoot && p.runsAs(m.idBase+machine.WorkloadID)
		o.NoNewPrivileges = o.NoNewPrivileges && p.noNewPrivileges
		o.CapabilitiesZero = o.CapabilitiesZero && p.capabilitiesZero
		o.Seccomp = o.Seccomp && p.filtered
	}
	if o.Interfaces, err = interfaces(m.init); err != nil {
		return machine.Observed{}, err
	}
	m.limits(&o)
	// All of it was the machine's only if its init lived to the end.
	if err := m.Alive(); err != nil {
		return machine.Observed{}, err
	}
	return o, nil
}

type seen struct {
	own              map[string]bool // namespaces that are not this process's
	users            []string        // real, effective, saved and file system id
	noNewPrivileges  bool
	capabilitiesZero bool
	filtered         bool
}

// runsAs reports whether all of a process's user ids are id.
func (s seen) runsAs(id uint32) bool {
	want := strconv.FormatUint(uint64(id), 10)
	return len(s.users) == 4 && !slices.ContainsFunc(s.users, func(u string) bool { return u != want })
}

func look(pid int) (seen, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	s := seen{own: map[string]bool{}, capabilitiesZero: true}
	for _, kind := range []string{"user", "pid", "mnt", "net"} {
		theirs, err := os.Readlink(dir + "/ns/" + kind)
		if err != nil {
			return seen{}, err
		}
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return seen{}, err
		}
		s.own[kind] = theirs != ours
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return seen{}, err
	}
	sets := 0
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Uid":
			s.users = strings.Fields(value)
		case "NoNewPrivs":
			s.noNewPrivileges = value == "1"
		case "Seccomp":
			s.filtered = value == "2"
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
			sets++
			s.capabilitiesZero = s.capabilitiesZero && strings.Trim(value, "0") == ""
		}
	}
	s.capabilitiesZero = s.capabilitiesZero && sets == 5
	return s, nil
}

// interfaces lists the network interfaces that a process can see.
func interfaces(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/net/dev")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok && !strings.Contains(name, "|") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, nil
}

// limits reads what the kernel holds the machine to.
func (m *instance) limits(o *machine.Observed) {
	name := m.driver.cgroup(m.id)
	for _, h := range m.trees {
		dir := filepath.Join(h.mount, name)
		if pids, err := members(dir); err == nil && holds(pids, o.Pids) {
			o.CgroupPaths = append(o.CgroupPaths, dir)
		}
	}
	at := func(controller string) (string, bool) {
		h, ok := with(m.trees, controller)
		return filepath.Join(h.mount, name), ok && h.unified
	}
	if dir, v2 := at("memory"); v2 {
		o.MemoryLimit = readInt(filepath.Join(dir, "memory.max"))
	} else if n := readInt(filepath.Join(dir, "memory.limit_in_bytes")); n < 1<<62 {
		// Without a limit the old layout shows the largest page count.
		o.MemoryLimit = n
	}
	dir, _ := at("pids")
	o.PidsLimit = readInt(filepath.Join(dir, "pids.max"))
	var quota, period int64
	if dir, v2 := at("cpu"); v2 {
		text, _ := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if f := strings.Fields(string(text)); len(f) == 2 {
			quota, _ = strconv.ParseInt(f[0], 10, 64)
			period, _ = strconv.ParseInt(f[1], 10, 64)
		}
	} else {
		quota = readInt(filepath.Join(dir, "cpu.cfs_quota_us"))
		period = readInt(filepath.Join(dir, "cpu.cfs_period_us"))
	}
	if quota > 0 && period > 0 {
		o.CPUQuotaMillis = quota * 1000 / period
	}
}

// holds says whether every one of want is in pids.
func holds(pids, want []int) bool {
	in := make(map[int]bool, len(pids))
	for _, pid := range pids {
		in[pid] = true
	}
	for _, pid := range want {
		if !in[pid] {
			return false
		}
	}
	return len(want) > 0
}
