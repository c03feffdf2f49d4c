package native

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// What an allowlist machine has beyond one without a network: a read-only
// directory with the guard's socket in it, and a loopback port that leads there.
// Its network namespace stays the empty one, so there is nothing to route.
// Source: design "Egress" (socket file).
const (
	egressPath = "/run/checkfu/egress"
	socketName = "guard.sock"
	proxyPort  = 3128
)

// Egress is what allowlist machines need of the host.
type Egress struct {
	// Start starts their guards.
	Start StartGuard
	// Resolver is asked for the listed names; zero is the first name server of the
	// host's resolv.conf at the time.
	Resolver netip.AddrPort
	// Within calls a function on a thread in the network namespace that the guards
	// are to have; nil is this process's own.
	Within func(func() error) error
}

// StartGuard starts the process that decides what one machine reaches, and
// returns once it listens. The caller closes listener and log afterwards. An
// error leaves no process.
type StartGuard func(ctx context.Context, config []byte, listener, log *os.File) (Guard, error)

// Guard is one running guard. It ends with the process that started it.
type Guard interface {
	PID() int
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Stop ends it and returns when it has ended. It may be called again.
	Stop(ctx context.Context) error
}

// maxDecisions bounds the decision log of one instance in bytes, give or take
// what is written within logCheck. The guard of a longer one is ended, and with it
// everything that its machine can reach. Who looks is this process: a limit of the
// guard's own would be one more thing that it has to be trusted for, and setting
// one from outside takes a power over the host that nothing else here needs.
const (
	maxDecisions = 32 << 20
	logCheck     = time.Second
)

// door is what a guard is started on: the socket that the machine will see, and
// the log.
type door struct{ listener, log *os.File }

// openDoor makes both. The log lies there before the guard runs and is open in it
// for as long as it lives: by that a sweep knows it.
func (in *instance) openDoor() (d door, err error) {
	d.log, err = os.OpenFile(in.at.decisions(), os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return d, err
	}
	if err = os.Mkdir(in.at.egress(), 0o755); err == nil || errors.Is(err, os.ErrExist) {
		d.listener, err = listenAt(in.at.egress())
	}
	if err != nil {
		d.log.Close()
		return d, err
	}
	in.p.opt.Step("egress")
	return d, nil
}

// startGuard starts the guard and holds that it enforces what it was told. It
// takes the door over.
func (in *instance) startGuard(ctx context.Context, d door) error {
	defer d.log.Close()
	// No copy of ours: with the guard gone nobody listens, and a connection is
	// refused instead of waiting in a queue that nobody serves.
	defer d.listener.Close()
	var guard Guard
	if err := in.p.opt.Egress.within(func() (err error) {
		guard, err = in.p.opt.Egress.Start(ctx, in.policy, d.listener, d.log)
		return err
	}); err != nil {
		return fmt.Errorf("start the egress guard: %w", err)
	}
	in.setGuard(guard)
	in.p.opt.Step("guarded")
	go boundLog(guard, in.at.decisions(), time.NewTicker(logCheck))
	return in.knowsPolicy(d.log)
}

func (e *Egress) within(f func() error) error {
	if e.Within == nil {
		return f()
	}
	return e.Within(f)
}

func (in *instance) setGuard(g Guard) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.guard = g
}

// hasGuard reports whether the guard runs.
func (in *instance) hasGuard() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.guard == nil {
		return false
	}
	select {
	case <-in.guard.Done():
		return false
	default:
		return true
	}
}

// boundLog ends the guard of a log that is too long.
func boundLog(guard Guard, path string, tick *time.Ticker) {
	defer tick.Stop()
	for {
		select {
		case <-guard.Done():
			return
		case <-tick.C:
		}
		if info, err := os.Lstat(path); err == nil && info.Size() <= maxDecisions {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), teardownBound)
		_ = guard.Stop(ctx) // else the next look, or the end of the instance
		cancel()
	}
}

// stopGuard ends the guard, if there is one.
func (in *instance) stopGuard(ctx context.Context) error {
	in.mu.Lock()
	guard := in.guard
	in.mu.Unlock()
	if guard == nil {
		return nil
	}
	if err := guard.Stop(ctx); err != nil {
		return fmt.Errorf("stop the egress guard: %w", err)
	}
	in.setGuard(nil)
	return nil
}

// listenAt makes a listening socket file in dir. Its path is named by descriptor:
// a state directory may be longer than a socket address.
func listenAt(dir string) (*os.File, error) {
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(at)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), filepath.Join(dir, socketName))
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(at) + "/" + socketName})
	if err == nil {
		// The workload may connect to it directly: it is the same guard. Nobody
		// but root and the machines' ids comes as far as this directory.
		err = errors.Join(os.Chmod(filepath.Join(dir, socketName), 0o666), unix.Listen(fd, 4096))
	}
	if err != nil {
		file.Close()
		return nil, wrap("listen on "+filepath.Join(dir, socketName), err)
	}
	return file, nil
}

// addEgress gives the machine its way to the guard.
func (in *instance) addEgress(spec *machine.Spec) {
	spec.Binds = append(spec.Binds, machine.Bind{Source: in.at.egress(), Destination: egressPath, ReadOnly: true})
	spec.Forwards = []machine.Forward{{Port: proxyPort, Socket: egressPath + "/" + socketName}}
}

// proxies tell the programs of an allowlist machine where the way out is. All
// name the guard, which takes CONNECT only: a program that asks it for a plain
// http page is told so, where without it the network would merely be unreachable.
func proxies() map[string]string {
	env := map[string]string{}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		env[name] = "http://127.0.0.1:" + strconv.Itoa(proxyPort)
		env[strings.ToUpper(name)] = env[name]
	}
	env["no_proxy"] = "localhost,127.0.0.1,::1"
	env["NO_PROXY"] = env["no_proxy"]
	return env
}
