package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// Observe reads back from /proc and the cgroup file system, never from what the
// driver asked for.
//
// What the host cannot see of a gVisor machine (the workload's uid, its
// capabilities and its no_new_privs are the sentry's own state) is not in it:
// NonRoot, NoNewPrivileges, CapabilitiesZero and Seccomp speak of the sentry, the gofer
// and the processes that run guest code, all of them.
func (m *gvisorMachine) Observe(ctx context.Context) (machine.Observed, error) {
	if err := m.Alive(); err != nil {
		return machine.Observed{}, err
	}
	name := m.driver.cgroup(m.spec.ID)
	found, err := m.driver.pids(m.spec.ID)
	if err != nil {
		return machine.Observed{}, err
	}
	// The helper made the machine and is no part of it: it starts nothing any
	// more, and while it is not reaped its number means nothing else.
	if m.helper.exiting() {
		found = slices.DeleteFunc(found, func(pid int) bool { return pid == m.helper.pid })
	}
	slices.Sort(found)
	if !slices.Contains(found, m.made.Sandbox) || !slices.Contains(found, m.made.Gofer) {
		return machine.Observed{}, fmt.Errorf("machine %s: expected sentry %d and gofer %d among %v", m.spec.ID, m.made.Sandbox, m.made.Gofer, found)
	}
	o := machine.Observed{
		UserNamespace: true, PidNamespace: true, MountNamespace: true, NetNamespace: true,
		NonRoot: true, NoNewPrivileges: true, CapabilitiesZero: true, Seccomp: true,
	}
	for _, pid := range found {
		s, err := look(pid)
		if err != nil {
			// Stub processes come and go with guest programs.
			if zombie(pid) {
				continue
			}
			return machine.Observed{}, err
		}
		o.Pids = append(o.Pids, pid)
		o.UserNamespace = o.UserNamespace && s.own("user")
		o.PidNamespace = o.PidNamespace && s.own("pid")
		o.MountNamespace = o.MountNamespace && s.own("mnt")
		o.NetNamespace = o.NetNamespace && s.own("net")
		o.NonRoot = o.NonRoot && s.within(m.spec.IDBase)
		o.NoNewPrivileges = o.NoNewPrivileges && s.status["NoNewPrivs"] == "1"
		o.Seccomp = o.Seccomp && s.status["Seccomp"] == "2"
		// Capabilities count in a process's own user namespace only: in
		// another than the host's they reach nothing of the host.
		o.CapabilitiesZero = o.CapabilitiesZero && (s.own("user") || s.status["CapEff"] == strings.Repeat("0", 16))
	}
	if o.Interfaces, err = interfaces(m.made.Sandbox); err != nil {
		return machine.Observed{}, err
	}
	if m.driver.rootless { // no cgroup, no limit of one
		return o, ctx.Err()
	}
	for _, dir := range cgroupDirs(name) {
		holds, err := holdsAll(dir, o.Pids)
		if err != nil {
			return machine.Observed{}, err
		}
		if holds {
			o.CgroupPaths = append(o.CgroupPaths, dir)
		}
	}
	if o.MemoryLimit, err = memoryMax.number(name); err != nil {
		return machine.Observed{}, err
	}
	if o.PidsLimit, err = pidsMax.number(name); err != nil {
		return machine.Observed{}, err
	}
	if o.CPUQuotaMillis, err = cpuMillis(name); err != nil {
		return machine.Observed{}, err
	}
	return o, ctx.Err()
}

type seen struct {
	namespaces map[string]string // type to link of the process
	status     map[string]string
}

// within reports whether all user ids of a process are in the machine's block.
func (s seen) within(base uint32) bool {
	ids := strings.Fields(s.status["Uid"])
	for _, text := range ids {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil || id < uint64(base) || id >= uint64(base)+machine.IDs {
			return false
		}
	}
	return len(ids) == 4
}

func hostNamespaces() map[string]string {
	s, err := namespaces("self")
	if err != nil {
		return nil // nothing is then ever seen to differ
	}
	return s
}

func (s seen) own(kind string) bool {
	host := hostNamespaces()[kind]
	return host != "" && s.namespaces[kind] != "" && s.namespaces[kind] != host
}

func namespaces(pid string) (map[string]string, error) {
	links := map[string]string{}
	for _, kind := range []string{"user", "pid", "mnt", "net"} {
		link, err := os.Readlink(filepath.Join("/proc", pid, "ns", kind))
		if err != nil {
			return nil, err
		}
		links[kind] = link
	}
	return links, nil
}

func look(pid int) (seen, error) {
	id := strconv.Itoa(pid)
	links, err := namespaces(id)
	if err != nil {
		return seen{}, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", id, "status"))
	if err != nil {
		return seen{}, err
	}
	return seen{links, parseHostStatus(text)}, nil
}

// parseHostStatus reads a /proc/PID/status of the host's kernel, which, unlike
// the sentry, escapes newlines in names: any line is its own.
func parseHostStatus(text []byte) map[string]string {
	status := map[string]string{}
	for line := range bytes.Lines(text) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok {
			status[string(name)] = string(bytes.TrimSpace(value))
		}
	}
	return status
}

// interfaces lists the network interfaces of a process's network namespace.
func interfaces(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return nil, err
	}
	var names []string
	for i, line := range strings.Split(string(text), "\n") {
		if i < 2 { // two lines of heading
			continue
		}
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, nil
}

func holdsAll(dir string, pids []int) (bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return false, err
	}
	in := map[string]bool{}
	for f := range strings.FieldsSeq(string(text)) {
		in[f] = true
	}
	for _, pid := range pids {
		if !in[strconv.Itoa(pid)] && !zombie(pid) {
			return false, nil
		}
	}
	return true, nil
}
