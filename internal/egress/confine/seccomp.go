package confine

import (
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seccomp installs the filter on every thread.
func seccomp(n Needs) error {
	filter := program(n, os.Getpid())
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	stray, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	switch {
	case errno != 0:
		return &Error{"seccomp", "a kernel with seccomp filters", errno.Error()}
	case stray != 0:
		return &Error{"seccomp", "one filter on all threads", "another one on thread " + strconv.Itoa(int(stray))}
	}
	return nil
}

// rule allows one system call where every check holds.
type rule struct {
	call   uintptr
	checks []check
}

// check holds where an argument, after the mask, is the value. Only the lower 32
// bits are looked at: each of the arguments that are checked is an int to the
// kernel, or the flags of a clone, of which it takes no more.
type check struct {
	argument    int
	mask, value uint32
}

func is(argument int, value uint32) check    { return check{argument, ^uint32(0), value} }
func lacks(argument int, bits uint32) check  { return check{argument, bits, 0} }
func allow(call uintptr, cs ...check) rule   { return rule{call, cs} }
func statement(code uint16, k uint32) opcode { return opcode{Code: code, K: k} }

type opcode = unix.SockFilter

// Where the fields of struct seccomp_data lie; little endian, as both
// architectures are.
const (
	dataCall, dataArch, dataArguments = 0, 4, 16

	load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	answer = unix.BPF_RET | unix.BPF_K
)

// program is the filter in BPF: a call of another architecture ends the
// process, so does one that no egress process ever makes; then the rules, one
// after the other; what is left is not permitted. Each rule stands alone and
// loads what it looks at, so that no jump is longer than its rule. The kernel
// keeps a map of the calls that are always allowed and does not run this for
// them.
func program(n Needs, pid int) []opcode {
	p := []opcode{
		statement(load, dataArch),
		{Code: equal, K: auditArch, Jt: 1},
		statement(answer, unix.SECCOMP_RET_KILL_PROCESS),
		statement(load, dataCall),
	}
	for _, call := range hostile {
		p = append(p, opcode{Code: equal, K: uint32(call), Jf: 1}, statement(answer, unix.SECCOMP_RET_KILL_PROCESS))
	}
	for _, r := range append(rules(uint32(pid)), sockets(n.Unix)...) {
		p = append(p, r.compile()...)
	}
	return append(p, statement(answer, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)))
}

// compile makes a block that allows, or falls out of its end.
func (r rule) compile() []opcode {
	block := []opcode{statement(load, dataCall), {Code: equal, K: uint32(r.call)}}
	for _, c := range r.checks {
		block = append(block, statement(load, dataArguments+8*uint32(c.argument)))
		if c.mask != ^uint32(0) {
			block = append(block, statement(and, c.mask))
		}
		block = append(block, opcode{Code: equal, K: c.value})
	}
	block = append(block, statement(answer, unix.SECCOMP_RET_ALLOW))
	for i := range block {
		if block[i].Code == equal {
			block[i].Jf = uint8(len(block) - 1 - i)
		}
	}
	return block
}
