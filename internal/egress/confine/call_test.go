package confine

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// none is an argument that no call can do anything with: as a pointer it faults,
// as a descriptor or an id it is none.
const none = ^uintptr(0)

// fastOpen is MSG_FASTOPEN.
const fastOpen = 0x20000000

// refusedCalls are tried with arguments that do no harm where they get through:
// the kernel's own answer in the twin is then another than EPERM.
var refusedCalls = []struct {
	name string
	nr   uintptr
	args []uintptr
}{
	{"openat", unix.SYS_OPENAT, []uintptr{none, none, 0, 0}},
	{"openat2", unix.SYS_OPENAT2, []uintptr{none, none, none, 24}},
	{"memfd_create", unix.SYS_MEMFD_CREATE, []uintptr{none, 0}},
	{"raw socket", unix.SYS_SOCKET, []uintptr{unix.AF_INET, unix.SOCK_RAW, 99999}},
	{"MPTCP socket", unix.SYS_SOCKET, []uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}},
	{"SCTP socket", unix.SYS_SOCKET, []uintptr{unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}},
	{"UNIX socket", unix.SYS_SOCKET, []uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0}},
	{"netlink socket", unix.SYS_SOCKET, []uintptr{unix.AF_NETLINK, unix.SOCK_RAW, 0}},
	{"vsock socket", unix.SYS_SOCKET, []uintptr{unix.AF_VSOCK, unix.SOCK_STREAM, 0}},
	{"crypto socket", unix.SYS_SOCKET, []uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}},
	{"socketpair", unix.SYS_SOCKETPAIR, []uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0, none}},
	{"bind", unix.SYS_BIND, []uintptr{none, 0, 0}},
	{"listen", unix.SYS_LISTEN, []uintptr{none, 0}},
	{"fast open", unix.SYS_SENDTO, []uintptr{none, 0, 0, fastOpen, 0, 0}},
	{"fast open by message", unix.SYS_SENDMSG, []uintptr{none, 0, fastOpen}},
	{"send to an address", unix.SYS_SENDTO, []uintptr{none, 0, 0, 0, 0, 0}},
	{"pass a descriptor", unix.SYS_SENDMSG, []uintptr{none, 0, 0}},
	{"take a descriptor", unix.SYS_RECVMSG, []uintptr{none, 0, 0}},
	{"attach a filter to a socket", unix.SYS_SETSOCKOPT, []uintptr{none, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, 0, 0}},
	{"upper layer protocol", unix.SYS_SETSOCKOPT, []uintptr{none, unix.IPPROTO_TCP, unix.TCP_ULP, 0, 0}},
	{"executable memory", unix.SYS_MMAP, []uintptr{0, 0, unix.PROT_EXEC, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, none, 0}},
	{"memory made executable", unix.SYS_MPROTECT, []uintptr{1, 0, unix.PROT_READ | unix.PROT_EXEC}},
	{"fork", unix.SYS_CLONE, []uintptr{unix.CLONE_SIGHAND, 0}}, // invalid without CLONE_VM
	{"clone3", unix.SYS_CLONE3, []uintptr{none, 1}},
	{"dumpable again", unix.SYS_PRCTL, []uintptr{unix.PR_SET_DUMPABLE, 77, 0, 0, 0}},
	{"limit", unix.SYS_PRLIMIT64, []uintptr{0, 99, 0, 0}},
	{"signal to another", unix.SYS_KILL, []uintptr{0x3fffffff, 0}},
	{"signal to a thread of another", unix.SYS_TGKILL, []uintptr{0x3fffffff, 0x3fffffff, 0}},
	{"signal by descriptor", unix.SYS_PIDFD_SEND_SIGNAL, []uintptr{none, 0, 0, 0}},
	{"descriptor of another", unix.SYS_PIDFD_GETFD, []uintptr{none, 0, 0}},
	{"ioctl", unix.SYS_IOCTL, []uintptr{none, 0, 0}},
	{"descriptor's owner", unix.SYS_FCNTL, []uintptr{none, unix.F_SETOWN, 0}},
	{"file by name", unix.SYS_UNLINKAT, []uintptr{none, none, 0}},
	{"Landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, []uintptr{none, 0}},
}

func TestTheFilterRefuses(t *testing.T) {
	for _, c := range refusedCalls {
		t.Run(c.name, func(t *testing.T) {
			with := arguments(c.nr, c.args)
			got, status := run(t, order{Do: "call", With: with, Waits: true})
			if got.Errno != syscall.EPERM {
				t.Errorf("%+v, %v", got, status)
			}
			twin, status := run(t, order{Do: "call", With: with, Without: without("seccomp"), Waits: true})
			if twin.Errno == syscall.EPERM || !status.Exited() {
				t.Errorf("without the filter it is refused too: %+v, %v", twin, status)
			}
		})
	}
}

// What only an intruder calls ends the process, and without the filter it is
// answered.
func TestTheFilterKills(t *testing.T) {
	for _, nr := range hostile {
		t.Run(fmt.Sprint(nr), func(t *testing.T) {
			with := arguments(nr, []uintptr{none, none, none, none, none, none})
			if got, status := run(t, order{Do: "call", With: with, Waits: true}); status.Signal() != syscall.SIGSYS {
				t.Errorf("%+v, %v", got, status)
			}
			twin, status := run(t, order{Do: "call", With: with, Without: without("seccomp"), Waits: true})
			if twin.Errno == 0 || !status.Exited() {
				t.Errorf("%+v, %v", twin, status)
			}
		})
	}
}

// Nothing but what the rules name is let through: every other number there is is
// tried, in one process.
func TestTheFilterAllowsNothingElse(t *testing.T) {
	var others []string
	for nr := range uintptr(1024) {
		named := func(r rule) bool { return r.call == nr }
		if nr == unix.SYS_SOCKET || slices.Contains(hostile, nr) || slices.ContainsFunc(rules(1), named) {
			continue
		}
		others = append(others, fmt.Sprint(nr))
	}
	if len(others) < 900 {
		t.Fatalf("only %d calls are left to try", len(others))
	}
	if got, status := run(t, order{Do: "all refused", With: strings.Join(others, " "), Waits: true}); got.Error != "" {
		t.Errorf("%+v, %v", got, status)
	}
}

// The filter of a socket is exact in family, kind and protocol.
func TestTheFilterIsInterpretedAsItIsMeant(t *testing.T) {
	for _, c := range []struct {
		unix                   bool
		family, kind, protocol uint32
		allowed                bool
	}{
		{false, unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, unix.IPPROTO_TCP, true},
		{false, unix.AF_INET6, unix.SOCK_DGRAM, 0, true},
		{false, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_TCP, false},
		{false, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, false},
		{false, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, false},
		{false, unix.AF_UNIX, unix.SOCK_STREAM, 0, false},
		{true, unix.AF_UNIX, unix.SOCK_STREAM, 0, true},
		{true, unix.AF_UNIX, unix.SOCK_DGRAM, 0, false},
		{true, unix.AF_PACKET, unix.SOCK_RAW, 0, false},
	} {
		p := program(Needs{Unix: c.unix}, 1)
		got := interpret(t, p, data{call: unix.SYS_SOCKET, arch: auditArch, arguments: [6]uint64{uint64(c.family), uint64(c.kind), uint64(c.protocol)}})
		if (got == unix.SECCOMP_RET_ALLOW) != c.allowed {
			t.Errorf("%+v: %#x", c, got)
		}
	}
	p := program(Needs{}, 7)
	for _, c := range []struct {
		data data
		want uint32
	}{
		{data{call: unix.SYS_READ, arch: auditArch}, unix.SECCOMP_RET_ALLOW},
		{data{call: unix.SYS_READ, arch: auditArch + 1}, unix.SECCOMP_RET_KILL_PROCESS},
		{data{call: unix.SYS_EXECVE, arch: auditArch}, unix.SECCOMP_RET_KILL_PROCESS},
		{data{call: 0x40000000 | unix.SYS_READ, arch: auditArch}, eperm}, // x32
		{data{call: unix.SYS_KILL, arch: auditArch, arguments: [6]uint64{7}}, unix.SECCOMP_RET_ALLOW},
		{data{call: unix.SYS_KILL, arch: auditArch, arguments: [6]uint64{8}}, eperm},
		{data{call: unix.SYS_KILL, arch: auditArch, arguments: [6]uint64{0}}, eperm},
		{data{call: unix.SYS_CLONE, arch: auditArch, arguments: [6]uint64{threads | cloneTLS}}, unix.SECCOMP_RET_ALLOW},
		{data{call: unix.SYS_CLONE, arch: auditArch, arguments: [6]uint64{threads | unix.CLONE_NEWUSER}}, eperm},
		{data{call: unix.SYS_CLONE, arch: auditArch, arguments: [6]uint64{uint64(unix.SIGCHLD)}}, eperm},
	} {
		if got := interpret(t, p, c.data); got != c.want {
			t.Errorf("%+v: %#x", c.data, got)
		}
	}
}

const eperm = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)

// data is struct seccomp_data.
type data struct {
	call, arch uint32
	arguments  [6]uint64
}

// interpret runs a filter of the codes that compile uses.
func interpret(t *testing.T, p []opcode, d data) uint32 {
	t.Helper()
	var a uint32
	for at := 0; at < len(p); at++ {
		switch i := p[at]; i.Code {
		case load:
			switch {
			case i.K == dataCall:
				a = d.call
			case i.K == dataArch:
				a = d.arch
			default:
				a = uint32(d.arguments[(i.K-dataArguments)/8])
			}
		case and:
			a &= i.K
		case equal:
			if a == i.K {
				at += int(i.Jt)
			} else {
				at += int(i.Jf)
			}
		case answer:
			return i.K
		default:
			t.Fatalf("code %#x", i.Code)
		}
	}
	t.Fatal("no answer")
	return 0
}

func arguments(nr uintptr, args []uintptr) string {
	all := make([]string, 7)
	for i := range all {
		all[i] = "0"
	}
	all[0] = fmt.Sprint(nr)
	for i, a := range args {
		all[1+i] = fmt.Sprint(a)
	}
	return strings.Join(all, " ")
}
