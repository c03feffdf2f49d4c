package gvisor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// maxSpecial is the longest record of the walk: a type and a path.
const maxSpecial = 16 + 4096

// Specials walks root as the guest sees it. FIFOs and sockets that the workload
// makes live in the sentry only, so only a walk inside can name them. The walk
// runs as guest root with the capabilities to read any directory, so a
// directory of mode 0000 hides nothing.
//
// Errors: any directory that could not be read, more than limit entries, a
// malformed answer; *EndedError; ctx's.
func (m *gvisorMachine) Specials(ctx context.Context, root string, limit int) ([]machine.Special, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		write.Close()
		return nil, err
	}
	defer errRead.Close()

	caps := auth.CapabilitySetOfMany([]linux.Capability{linux.CAP_DAC_READ_SEARCH, linux.CAP_DAC_OVERRIDE})
	p, err := m.exec(ctx, machine.Command{
		Argv:   []string{machine.InitPath, "specials", root, strconv.Itoa(limit)},
		Dir:    "/",
		Stdout: write,
		Stderr: errWrite,
	}, &control.ExecArgs{
		NoNewPrivileges: true,
		Capabilities:    &auth.TaskCapabilities{PermittedCaps: caps, EffectiveCaps: caps, BoundingCaps: caps},
	})
	write.Close()
	errWrite.Close()
	if err != nil {
		return nil, err
	}
	// The pipes end with the walk, or here when the caller gives up.
	stop := context.AfterFunc(ctx, func() { read.Close(); errRead.Close() })
	defer stop()

	said := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(errRead, 4096))
		said <- text
	}()
	bound := int64(limit+1) * maxSpecial
	text, readErr := io.ReadAll(io.LimitReader(read, bound))
	if readErr != nil || int64(len(text)) == bound {
		// Bounded: a sentry that hangs does not answer this either.
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBound)
		_ = p.Signal(kill, "SIGKILL")
		cancel()
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if readErr != nil {
		return nil, readErr
	}
	if exit.Code != 0 || exit.Signal != "" {
		return nil, fmt.Errorf("walk of %s failed (code %d%s): %s", root, exit.Code, exit.Signal, bytes.TrimSpace(<-said))
	}
	found, err := guest.ParseSpecials(text, root, limit)
	if err != nil {
		return nil, err
	}
	all := make([]machine.Special, len(found))
	for i, f := range found {
		all[i] = machine.Special(f)
	}
	return all, nil
}
