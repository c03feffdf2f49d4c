package all

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/internal/provider/native"
)

// egress is what allowlist machines need, or nil where this program was built
// without a guard or this kernel cannot confine one: allowlists are then not in
// the envelope, and nothing weaker stands in for them.
func egress(o Options) *native.Egress {
	if !launch.GuardProgram.Built() || !landlock() {
		return nil
	}
	e := o.Egress
	if e.Start == nil {
		e.Start = startGuard
	}
	return &e
}

func startGuard(ctx context.Context, config []byte, listener, log *os.File) (native.Guard, error) {
	p, err := launch.Guard(ctx, config, listener, log)
	if err != nil {
		return nil, err
	}
	return guard{p}, nil
}

type guard struct{ *launch.Process }

// PID is the guard's process id.
func (g guard) PID() int { return g.Process.PID }

// landlock reports whether the kernel has it.
func landlock() bool {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= 1
}
