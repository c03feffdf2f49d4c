package confine

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A kernel that cannot take a step is refused by the step's name, and nothing
// goes on without it. Only Landlock can be gone without, where the launcher knows.
func TestAKernelThatLacksAStep(t *testing.T) {
	for _, c := range []struct {
		call  uintptr
		errno syscall.Errno
		told  bool // Needs.NoLandlock
		step  string
	}{
		{unix.SYS_GETDENTS64, syscall.EACCES, false, "descriptors"},
		{unix.SYS_PRLIMIT64, syscall.EPERM, false, "core"},
		{unix.SYS_PRCTL, syscall.EINVAL, false, "no_new_privs"},
		{unix.SYS_SETGROUPS, syscall.EPERM, false, "identity"},
		{unix.SYS_SETRESGID, syscall.EPERM, false, "identity"},
		{unix.SYS_SETRESUID, syscall.EAGAIN, false, "identity"},
		{unix.SYS_CAPSET, syscall.EPERM, false, "identity"},
		{unix.SYS_LANDLOCK_CREATE_RULESET, syscall.ENOSYS, false, "landlock"},
		{unix.SYS_LANDLOCK_CREATE_RULESET, syscall.EOPNOTSUPP, false, "landlock"},
		{unix.SYS_LANDLOCK_CREATE_RULESET, syscall.ENOSYS, true, ""},
		{unix.SYS_LANDLOCK_CREATE_RULESET, syscall.EOPNOTSUPP, true, ""},
		{unix.SYS_LANDLOCK_CREATE_RULESET, syscall.EPERM, true, "landlock"},
		{unix.SYS_LANDLOCK_ADD_RULE, syscall.EINVAL, true, "landlock"},
		{unix.SYS_LANDLOCK_RESTRICT_SELF, syscall.E2BIG, true, "landlock"},
		{unix.SYS_SECCOMP, syscall.ENOSYS, true, "seccomp"},
	} {
		t.Run(fmt.Sprint(c.call, " ", c.errno, " told ", c.told), func(t *testing.T) {
			var r *running
			lacking(t, c.call, c.errno, func() {
				r = begin(t, order{Needs: Needs{NoLandlock: c.told, Ports: []uint16{1}}, Do: "read file", With: "/etc/passwd", Waits: true}, nil)
			})
			if r.Confined.Step != c.step || (c.step == "") != (r.Confined.Error == "") {
				t.Errorf("%+v", r.Confined)
			}
			if c.step != "" {
				return
			}
			if got, _ := r.act(t); got.Errno != syscall.EPERM {
				t.Errorf("the other steps do not hold alone: %+v", got)
			}
		})
	}
}

// lacking calls f on a thread for which, and for whose children, a system call
// fails. The thread ends with it.
func lacking(t *testing.T, call uintptr, errno syscall.Errno, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it fails system calls of its children")
	}
	done := make(chan struct{})
	go func() {
		defer close(done) // also where f fails the test, which ends the goroutine
		runtime.LockOSThread()
		filter := []opcode{
			statement(load, dataCall),
			{Code: equal, K: uint32(call), Jf: 1},
			statement(answer, unix.SECCOMP_RET_ERRNO|uint32(errno)),
			statement(answer, unix.SECCOMP_RET_ALLOW),
		}
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		_, _, failed := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
		runtime.KeepAlive(filter)
		if failed != 0 {
			t.Error(failed)
			return
		}
		f()
	}()
	<-done
	if t.Failed() {
		t.FailNow()
	}
}
