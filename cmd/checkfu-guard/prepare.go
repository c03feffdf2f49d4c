package main

import (
	"net/netip"
	"slices"

	"github.com/checkfu/checkfu/internal/egress/confine"
	"github.com/checkfu/checkfu/internal/egress/daemon"
	"github.com/checkfu/checkfu/internal/egress/guard"
)

// prepare makes the guard. It asks the kernel for its own addresses now: no
// socket that could is left to it later.
func prepare(in daemon.Inputs) (daemon.Service, error) {
	config, err := guard.ParseConfig(in.Config)
	if err != nil {
		return daemon.Service{}, err
	}
	g, err := guard.New(guard.Options{Config: config, Log: in.Log, Notes: in.Notes})
	if err != nil {
		return daemon.Service{}, err
	}
	return daemon.Service{Needs: needs(config), Serve: g.Serve}, nil
}

// What a guard holds beside its tunnels: streams, log, poller and a reserve. And
// for each tunnel: both sockets, and for each direction the two ends of a pipe; a
// request that has no tunnel yet needs no more than that for its questions.
const (
	filesAtRest   = 128
	filesOfTunnel = 6
)

// needs are the ports of its list, that of its resolver (which is asked by TCP
// where an answer was cut short), and a bound on descriptors.
func needs(c guard.Config) confine.Needs {
	tunnels := c.Limits.Tunnels
	if tunnels == 0 {
		tunnels = guard.DefaultTunnels
	}
	n := confine.Needs{Files: filesAtRest + guard.MaxHeads + filesOfTunnel*int(tunnels)}
	for _, e := range c.Allow {
		for _, port := range e.Ports {
			n.Ports = append(n.Ports, uint16(port))
		}
	}
	if resolver, err := netip.ParseAddrPort(c.Resolver); err == nil { // it was parsed before
		n.Ports = append(n.Ports, resolver.Port())
	}
	slices.Sort(n.Ports)
	n.Ports = slices.Compact(n.Ports)
	return n
}
