package native

import (
	"context"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// What an allowlist machine has beyond one without a network: a guard behind a
// socket, and a loopback port that leads there.
const (
	guardSocket = "guard.sock"
	proxyPort   = 3128
)

// Egress is what allowlist machines need of the host.
type Egress struct {
	// Start starts their guards.
	Start StartAttendant
	// Resolver is asked for the listed names; zero is the first name server of the
	// host's resolv.conf at the time.
	Resolver netip.AddrPort
	// Within calls a function on a thread in the network namespace that the guards
	// are to have; nil is this process's own.
	Within func(func() error) error
}

// start is Start in the network of the guards.
func (e *Egress) start(ctx context.Context, config []byte, listener, log *os.File) (guard Attendant, err error) {
	err = e.within(func() (err error) {
		guard, err = e.Start(ctx, config, listener, log)
		return err
	})
	return guard, err
}

func (e *Egress) within(f func() error) error {
	if e.Within == nil {
		return f()
	}
	return e.Within(f)
}

// noProxy is what needs no proxy: the machine itself, and on it the way to the
// model relay.
const noProxy = "localhost,127.0.0.1,::1"

// proxies tell the programs of an allowlist machine where the way out is. All
// name the guard, which takes CONNECT only: a program that asks it for a plain
// http page is told so, where without it the network would merely be unreachable.
func proxies() map[string]string {
	env := map[string]string{}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		env[name] = "http://127.0.0.1:" + strconv.Itoa(proxyPort)
		env[strings.ToUpper(name)] = env[name]
	}
	env["no_proxy"], env["NO_PROXY"] = noProxy, noProxy
	return env
}
