package main

import (
	"net/netip"

	"github.com/checkfu/checkfu/internal/egress/confine"
	"github.com/checkfu/checkfu/internal/egress/daemon"
	"github.com/checkfu/checkfu/internal/egress/relay"
)

// prepare makes the relay.
func prepare(in daemon.Inputs) (daemon.Service, error) {
	config, err := relay.ParseConfig(in.Config)
	if err != nil {
		return daemon.Service{}, err
	}
	r, err := relay.New(relay.Options{Config: config, Log: in.Log, Notes: in.Notes})
	if err != nil {
		return daemon.Service{}, err
	}
	return daemon.Service{Needs: needs(config), Serve: r.Serve}, nil
}

// What a relay holds beside its connections, and for each request: the
// workload's and the gateway's.
const (
	filesAtRest    = 64
	filesOfRequest = 2
)

// needs are the way to the one gateway, and a bound on descriptors.
func needs(c relay.Config) confine.Needs {
	requests := c.Limits.Requests
	if requests == 0 {
		requests = relay.DefaultRequests
	}
	n := confine.Needs{Files: filesAtRest + relay.MaxHeads + filesOfRequest*int(requests)}
	switch network, address := c.GatewayAddr(); network {
	case "unix":
		n.Unix = true
	case "tcp":
		if at, err := netip.ParseAddrPort(address); err == nil { // it was parsed before
			n.Ports = []uint16{at.Port()}
		}
	}
	return n
}
