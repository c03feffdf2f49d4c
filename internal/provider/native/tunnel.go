package native

import (
	"context"
	"os"
	"sync"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// Tunnel is the way to one connection to a server in a machine: a process of the
// workload's user in there, and the pipes to it.
// Ownership: pipes and process are the Tunnel's, until Close.
type Tunnel struct {
	in    *instance
	m     machine.Machine
	proc  machine.Process
	pipes *pipes
	once  sync.Once
}

// Tunnel starts what connects to a TCP port of the loopback address in an active
// machine, whatever its network: what it says to the host it says over the pipes
// of a command that the host started, so no way leads out of the machine that was
// not there. It takes no place of the one live process, which the contract gives
// to whoever drives the machine: a server lives as long as that process does, and
// would be out of reach otherwise.
//
// Blocks: until the process has started; whether somebody listens the pipes say.
// Errors: *sandbox.Error of open_process: no such instance, not active,
// provider_error.
// Ownership: the caller closes the Tunnel; it also ends with the machine.
func (p *Provider) Tunnel(ctx context.Context, id sandbox.InstanceID, port int) (*Tunnel, error) {
	in, err := p.find(sandbox.OpOpenProcess, id)
	if err != nil {
		return nil, err
	}
	m, leave, err := in.enter(ctx, sandbox.OpOpenProcess)
	if err != nil {
		return nil, err
	}
	defer leave()
	pipes, err := openPipes()
	if err != nil {
		return nil, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, err)
	}
	defer pipes.closeGuest()
	proc, err := m.Exec(ctx, machine.Command{
		// Each thread of it is a process of the machine's.
		Argv: guest.DialCommand(machine.InitPath, port), Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}, Dir: "/",
		Stdin: pipes.guest[0], Stdout: pipes.guest[1], Stderr: pipes.guest[2],
	})
	if err != nil {
		pipes.close()
		return nil, sandbox.Failed(sandbox.OpOpenProcess, sandbox.ReasonProviderError, err)
	}
	return &Tunnel{in: in, m: m, proc: proc, pipes: pipes}, nil
}

// Files are our ends of the pipes: to its standard input, from its standard
// output and standard error. Whoever wants to keep one beyond Close duplicates it.
func (t *Tunnel) Files() [3]*os.File { return t.pipes.host }

// Close ends the process and closes the pipes, and returns when nothing of it is
// left. It may be called again, and then does nothing.
// Errors: what keeps the process; it then ends with the machine.
func (t *Tunnel) Close() (err error) {
	t.once.Do(func() {
		t.pipes.close()
		// Its tree, although it starts nothing: who it shares a user with may have.
		if err = t.in.killTree(context.Background(), t.proc); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), teardownBound)
			defer cancel()
			_, err = t.proc.Wait(ctx)
		}
		if t.m.Alive() != nil {
			err = nil // it went with the machine
		}
	})
	return err
}
