package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
	"github.com/checkfu/checkfu/sandbox"
)

// verify reads back from outside the guest what the nine axes claim. An axis
// that a twin leaves out on purpose is not looked at.
func (in *instance) verify(ctx context.Context, m machine.Machine, spec machine.Spec) error {
	if in.p.twin != (machine.Twin{}) || in.p.twinHome != (twinHome{}) {
		return nil
	}
	seen, err := m.Observe(ctx)
	if err != nil {
		return fmt.Errorf("read back the machine: %w", err)
	}
	var broken []string
	must := func(axis sandbox.Axis, holds bool, what string) {
		if !holds {
			broken = append(broken, string(axis)+": "+what)
		}
	}
	must(sandbox.AxisSandboxIsolation, seen.UserNamespace && seen.PidNamespace && seen.MountNamespace && seen.Seccomp, "not in namespaces and seccomp of its own")
	must(sandbox.AxisNonRoot, seen.NonRoot, "a process of the machine runs as a user it must not be")
	must(sandbox.AxisNoNewPrivileges, seen.NoNewPrivileges, "a process of the machine lacks no_new_privs")
	must(sandbox.AxisCapabilitiesDropped, seen.CapabilitiesZero, "a process of the machine holds host capabilities")
	for _, p := range in.posts() {
		must(sandbox.AxisNetworkPolicy, in.runs(p), "the "+p.name+" ended")
	}
	must(sandbox.AxisNetworkPolicy, seen.NetNamespace, "no network namespace of its own")
	if err := in.networkHolds(seen.Interfaces); err != nil {
		must(sandbox.AxisNetworkPolicy, false, err.Error())
	}
	must(sandbox.AxisResourceLimits, !in.p.claims(sandbox.AxisResourceLimits) || len(seen.CgroupPaths) > 0 && seen.MemoryLimit > 0 && seen.MemoryLimit <= spec.Limits.MemoryBytes &&
		seen.PidsLimit > 0 && seen.CPUQuotaMillis > 0 && seen.CPUQuotaMillis <= spec.Limits.CPUMillis,
		fmt.Sprintf("memory %d, pids %d, cpu %d", seen.MemoryLimit, seen.PidsLimit, seen.CPUQuotaMillis))
	size, err := filesystemLimit(in.at)
	must(sandbox.AxisDiskLimit, err == nil && size <= (in.request.Profile.ResourceLimits.DiskBytes+4095)/4096*4096, fmt.Sprintf("home of %d bytes", size))
	must(sandbox.AxisRootReadOnly, in.building != nil || readOnlyMount(in.at.root()), "the root is mounted writable")
	must(sandbox.AxisSandboxIsolation, in.building == nil || writableRoot(in.at), "the root of a build is not the overlay that its home bounds")
	if err := in.verifyMounts(seen.Pids, must); err != nil {
		return fmt.Errorf("read back the mounts: %w", err)
	}
	if len(broken) > 0 {
		return fmt.Errorf("a control does not hold: %s", strings.Join(broken, "; "))
	}
	return nil
}

// verifyMounts looks, through the eyes of every process of the machine, at what
// the host's file systems are to it: of the home only the trees, each where it
// belongs and the sealed ones read-only; of the provider's own disk only the
// init, read-only; the root read-only.
func (in *instance) verifyMounts(pids []int, must func(sandbox.Axis, bool, string)) error {
	home, err := device(in.at.home())
	if err != nil {
		return err
	}
	disk, err := device(in.p.initPath)
	if err != nil {
		return err
	}
	inPlace := map[string]bool{}
	for _, pid := range pids {
		mounts, err := mountsOf(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			continue // it ended meanwhile
		}
		if err != nil {
			return err
		}
		for _, m := range mounts {
			switch {
			case m.device == home:
				i := slices.IndexFunc(in.trees, func(t tree) bool { return "/"+t.home == m.root && t.guest == m.point })
				if i < 0 {
					must(sandbox.AxisSandboxIsolation, false, m.root+" of the home is mounted on "+m.point)
					continue
				}
				inPlace[m.point] = true
				must(sandbox.AxisMountsSealed, m.readOnly || !in.trees[i].readOnly, m.point+" is mounted writable")
			case m.device == disk:
				egress := len(in.posts()) > 0 && m.point == egressPath && strings.HasSuffix(userns.Origin(in.at.egress()), m.root)
				must(sandbox.AxisSandboxIsolation, (m.point == machine.InitPath || egress) && m.readOnly, m.root+" of the host is mounted on "+m.point)
			case m.point == "/":
				must(sandbox.AxisRootReadOnly, m.readOnly || in.building != nil, "the machine's root is mounted writable")
			}
		}
	}
	for _, t := range in.trees {
		must(sandbox.AxisMountsSealed, inPlace[t.guest], t.guest+" is not mounted")
	}
	return nil
}

// mountpoint is one line of a mountinfo.
type mountpoint struct {
	device   string // major:minor
	root     string // what of the file system is mounted
	point    string // where
	readOnly bool
}

// mountsOf reads the mounts that a process sees.
func mountsOf(pid int) ([]mountpoint, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []mountpoint
	for line := range strings.Lines(string(text)) {
		// ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAG ...] - TYPE SOURCE SUPER
		f := strings.Fields(line)
		if len(f) < 6 {
			return nil, fmt.Errorf("mountinfo of %d: expected at least 6 fields, got %q", pid, line)
		}
		all = append(all, mountpoint{
			device: f[2], root: unescape.Replace(f[3]), point: unescape.Replace(f[4]),
			readOnly: slices.Contains(strings.Split(f[5], ","), "ro"),
		})
	}
	return all, nil
}

// device is the file system that path lies on, as a mountinfo names it.
func device(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), nil
}
