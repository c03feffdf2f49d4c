package native

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denial makes the kernel refuse one call to a child of the test and to all
// that it starts, as an older kernel, a container engine or a policy would.
type denial struct {
	call  uint32
	errno unix.Errno
	// With mask, only if argument arg & mask == value.
	arg   uint32
	mask  uint32
	value uint32
}

// refusals are the calls without which some control cannot be set, and a word
// that the refusal must hold for each driver ("" where the driver does without).
var refusals = []struct {
	name        string
	denials     []denial
	runsc, runc string
}{
	{"openat2", []denial{{call: unix.SYS_OPENAT2, errno: unix.ENOSYS}}, "openat2", "openat2"},
	{"mount", []denial{{call: unix.SYS_MOUNT, errno: unix.EPERM}}, "mount tmpfs", "mount tmpfs"},
	{"overlay", []denial{{call: unix.SYS_MOUNT, errno: unix.ENODEV, arg: 3, mask: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_BIND | unix.MS_REMOUNT, value: unix.MS_RDONLY}}, "mount overlay", "mount overlay"},
	{"user namespaces", []denial{
		{call: unix.SYS_CLONE, errno: unix.EPERM, mask: unix.CLONE_NEWUSER, value: unix.CLONE_NEWUSER},
		{call: unix.SYS_CLONE3, errno: unix.ENOSYS}, {call: unix.SYS_UNSHARE, errno: unix.EPERM},
	}, "user namespace", "user namespace"},
	{"network namespaces", []denial{
		{call: unix.SYS_CLONE, errno: unix.EPERM, mask: unix.CLONE_NEWNET, value: unix.CLONE_NEWNET},
		{call: unix.SYS_CLONE3, errno: unix.ENOSYS},
	}, "net namespace", "net namespace"},
	{"unshare", []denial{{call: unix.SYS_UNSHARE, errno: unix.EPERM}}, "", "unshare"},
	{"seccomp", []denial{
		{call: unix.SYS_SECCOMP, errno: unix.ENOSYS},
		{call: unix.SYS_PRCTL, errno: unix.EINVAL, mask: ^uint32(0), value: unix.PR_SET_SECCOMP},
	}, "", "seccomp"},
	{"no_new_privs", []denial{{call: unix.SYS_PRCTL, errno: unix.EINVAL, mask: ^uint32(0), value: unix.PR_SET_NO_NEW_PRIVS}}, "", "NO_NEW_PRIVS"},
	{"capset", []denial{{call: unix.SYS_CAPSET, errno: unix.EPERM}}, "cap", "cap"},
	{"pivot_root", []denial{{call: unix.SYS_PIVOT_ROOT, errno: unix.EPERM}}, "pivot", "pivot"},
	{"pidfd_open", []denial{{call: unix.SYS_PIDFD_OPEN, errno: unix.ENOSYS}}, "pidfd_open", "pidfd_open"},
	{"statfs", []denial{{call: unix.SYS_STATFS, errno: unix.EPERM}}, "", ""},
	{"flock", []denial{{call: unix.SYS_FLOCK, errno: unix.ENOLCK}}, "flock", "flock"},
	{"chown", []denial{{call: unix.SYS_FCHOWNAT, errno: unix.EPERM}, {call: unix.SYS_CHOWN, errno: unix.EPERM}, {call: unix.SYS_LCHOWN, errno: unix.EPERM}, {call: unix.SYS_FCHOWN, errno: unix.EPERM}}, "chown", "chown"},
	{"rlimits", []denial{{call: unix.SYS_PRLIMIT64, errno: unix.EPERM}, {call: unix.SYS_SETRLIMIT, errno: unix.EPERM}}, "", "rlimit"},
}

// confined is what must hold inside of a machine that was activated: it exits 0.
const confined = `test "$(id -u)" = 10001 && grep -q 'CapEff:.*0000000000000000' /proc/self/status && grep -q 'NoNewPrivs:.1' /proc/self/status &&
	! touch /etc/x 2>/dev/null && ! touch /data/in/x 2>/dev/null && test "$(grep -c : /proc/net/dev)" -le 1 && test "$(ls -d /proc/[0-9]* | wc -l)" -lt 12`

// refusedChild goes through a life with a call refused and says what came of it.
func refusedChild(name string) {
	p := childProvider(nil)
	for _, r := range refusals {
		if r.name == name {
			childFailed(deny(r.denials))
		}
	}
	ctx := context.Background()
	h, err := p.Provision(ctx, request(p, work, data))
	if err != nil {
		fmt.Println("refused: " + err.Error())
		os.Exit(0)
	}
	if _, err := p.Activate(ctx, h.Value.InstanceID); err != nil {
		fmt.Println("refused: " + err.Error())
	} else if s, err := p.Execute(ctx, h.Value.InstanceID, shell(confined)); err != nil {
		fmt.Println("failed: " + err.Error())
	} else {
		fmt.Printf("ran: %s %s%s\n", showExit(s), s.Stdout, s.Stderr)
	}
	childFailed(p.Destroy(ctx, h.Value.InstanceID))
	os.Exit(0)
}

// deny installs a filter in every thread of this process.
func deny(all []denial) error {
	const nr, args = 0, 16 // offsets in seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: no}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	var f []unix.SockFilter
	for _, d := range all {
		refuse := answer(unix.SECCOMP_RET_ERRNO | uint32(d.errno))
		if d.mask == 0 {
			f = append(f, load(nr), equal(d.call, 1), refuse)
			continue
		}
		f = append(f, load(nr), equal(d.call, 4), load(args+8*d.arg),
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: d.mask}, equal(d.value, 1), refuse)
	}
	f = append(f, answer(unix.SECCOMP_RET_ALLOW))
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	const setModeFilter, tsync = 1, 1
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

// B41: where the kernel refuses what a control is made of, provision or activate
// says so by name and leaves nothing; a machine that does come up is confined
// no less.
func TestEnforcementStatement_ARefusedKernelFeatureIsNeverRunWithout(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refusals {
			t.Run(r.name, func(t *testing.T) {
				word := r.runsc
				if p.opt.Driver.Name() == "runc" {
					word = r.runc
				}
				child := exec.Command(self)
				child.Env = childEnv(p, "CHECKFU_TEST_REFUSED="+r.name)
				out, err := child.CombinedOutput()
				said := strings.TrimSpace(string(out))
				t.Log(said)
				switch {
				case err != nil:
					t.Errorf("%v", err)
				case strings.HasPrefix(said, "refused: ") && strings.Contains(said, word):
				case word == "" && strings.HasPrefix(said, "ran: 0"):
				default:
					t.Errorf("expected a refusal that names %q", word)
				}
				buryAdopted()
				if left := census(t, p); len(left) > 0 {
					t.Errorf("left:\n%s", strings.Join(left, "\n"))
				}
				sweep(t, p)
			})
		}
	})
}
