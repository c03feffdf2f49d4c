package native

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/uplink"
	"github.com/checkfu/checkfu/sandbox"
)

// fenceCheck is how often the fence of an open machine is looked at.
const fenceCheck = time.Second

// linked reports whether the instance has an unrestricted network.
func (in *instance) linked() bool {
	return in.request.Profile.NetworkPolicy.Mode == sandbox.NetworkUnrestricted
}

// Unrestricted says why no machine here can have an unrestricted network, or nil.
// Once nothing is missing it is not asked again.
// Errors: *uplink.Lack, perhaps several, joined.
func (p *Provider) Unrestricted() error {
	if p.rootless() {
		return errors.New("a link into the network is for the host's root to make: --allow names what is to be reached")
	}
	if p.opt.Uplink == nil {
		return errors.New("this provider was opened without one")
	}
	p.probing.Lock()
	defer p.probing.Unlock()
	if p.linkable {
		return nil
	}
	err := p.opt.Uplink.Lacks()
	p.linkable = err == nil
	return err
}

// findNameServer fixes whom the machine will ask, before anything is made.
func (in *instance) findNameServer() error {
	if !in.linked() {
		return nil
	}
	a, err := in.p.opt.Uplink.NameServer()
	in.host = uplink.Host{Resolver: a, Within: in.p.opt.Uplink.Within}
	return err
}

// resolvConf is the machine's own, nil where it is to have none.
func (in *instance) resolvConf() []byte {
	if !in.linked() {
		return nil
	}
	return []byte("nameserver " + in.host.Resolver.String() + "\n")
}

// connect makes the machine's network, with its fence, before the machine.
func (in *instance) connect() (namespace string, err error) {
	if !in.linked() {
		return "", nil
	}
	u, err := in.host.Open(string(in.id))
	if err != nil {
		return "", err
	}
	in.mu.Lock()
	in.uplink = u
	in.mu.Unlock()
	// It is cut, and so fenced better than before. No lock: Close waits for the watch.
	u.Watch(time.NewTicker(fenceCheck), func(error) { in.cut.Store(true) })
	in.p.opt.Step("linked")
	return u.Namespace(), nil
}

// fenced refuses to begin anything in a machine whose fence fell: it has not the network
// that was asked for any more, and whoever runs something there is to know why.
// Source: contract "Errors", third condition of network_policy.
func (in *instance) fenced(op sandbox.Operation) error {
	if !in.cut.Load() {
		return nil
	}
	return sandbox.Unavailable(op, sandbox.RequireNetworkPolicy, string(sandbox.NetworkUnrestricted), "none: the fence of the machine fell, and its link was cut")
}

// networkHolds reads back that the machine has the network that it is to have.
func (in *instance) networkHolds(interfaces []string) error {
	if !in.linked() {
		if !onlyLoopback(interfaces) {
			return fmt.Errorf("interfaces %v", interfaces)
		}
		return nil
	}
	slices.Sort(interfaces)
	if want := []string{uplink.Device, "lo"}; !slices.Equal(interfaces, want) {
		return fmt.Errorf("interfaces %v, expected %v", interfaces, want)
	}
	return in.hasUplink()
}

// hasUplink says why the machine's network is not, or no longer, what it was.
func (in *instance) hasUplink() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.uplink == nil {
		return errors.New("it has no link")
	}
	return in.uplink.Holds()
}

// disconnect takes the machine's network away.
func (in *instance) disconnect() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.uplink == nil {
		return nil
	}
	if err := in.uplink.Close(); err != nil {
		return err
	}
	in.uplink = nil
	return nil
}

// removeUplink does so from what is on disk alone. A record that cannot be read
// may have been that of a linked instance.
func (p *Provider) removeUplink(id sandbox.InstanceID, r record, readErr error) error {
	if readErr == nil && !r.Linked {
		return nil
	}
	h := p.opt.Uplink
	if h == nil {
		h = &uplink.Host{}
	}
	return h.Remove(string(id))
}

// refuseUnlinkable names what the host lacks for a network that this provider has
// elsewhere: the envelope merely says that it is not offered.
func (p *Provider) refuseUnlinkable(r sandbox.ProvisionRequest) error {
	if p.opt.Uplink == nil || r.Profile.NetworkPolicy.Mode != sandbox.NetworkUnrestricted {
		return nil
	}
	if err := p.Unrestricted(); err != nil {
		return sandbox.Failed(sandbox.OpProvision, "host_lacks", err)
	}
	return nil
}
