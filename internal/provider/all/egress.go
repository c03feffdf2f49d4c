package all

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/internal/provider/native"
)

// Allowlist says why no machine on this host can have an allowlist, or nil: this
// program was built without a guard, or the kernel cannot confine one. Allowlists
// are then in no envelope, and nothing weaker stands in for them.
func Allowlist() error {
	if !launch.GuardProgram.Built() {
		return &launch.MissingError{Program: launch.GuardProgram}
	}
	if !landlock() {
		return errors.New("the kernel has no Landlock, in which a guard is confined; use one with it, and name landlock in its parameter lsm=")
	}
	return nil
}

func landlock() bool {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= 1
}

// egress is what allowlist machines need, nil where there can be none.
func egress(o Options) *native.Egress {
	if Allowlist() != nil {
		return nil
	}
	e := o.Egress
	if e.Start == nil {
		e.Start = startGuard
	}
	return &e
}

func startGuard(ctx context.Context, config []byte, listener, log *os.File) (native.Attendant, error) {
	p, err := launcher(launch.GuardUID).Guard(ctx, config, listener, log)
	if err != nil {
		return nil, err
	}
	return attendant{p}, nil
}

type attendant struct{ *launch.Process }

// PID is its process id.
func (a attendant) PID() int { return a.Process.PID }
