package native

import (
	"errors"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// lessened takes out of an envelope what an ordinary user's machines do not have. There
// is no cgroup, so no limit of memory, cores or host processes holds; what is said of
// the disk is held by the size of the home, as everywhere. Homes in images, links of the
// network and build machines are for the host's root to make.
//
// It is a provider revision of its own, which nobody is given who did not name it.
// Source: concept "The enforcement statement"; "Where a provider sits", Selection.
func lessened(c *sandbox.Capabilities) {
	c.Enforcement = c.Enforcement.With(sandbox.AxisResourceLimits, sandbox.NotEnforced)
	c.NetworkModes = []sandbox.NetworkMode{sandbox.NetworkNone, sandbox.NetworkAllowlist}
	c.PackageManagers = []sandbox.PackageManager{}
	withoutSnapshots(c)
}

// rootless reports whether the machines are an ordinary user's, in namespaces of this
// process: another process sees neither their mounts nor their processes.
func (p *Provider) rootless() bool { return p.opt.Driver.Name() == machine.Rootless }

// claims reports whether the envelope claims an axis, so that it has to hold.
func (p *Provider) claims(axis sandbox.Axis) bool {
	a := Envelope(p.opt.Driver.Name(), "").Enforcement.On(axis)
	return a != sandbox.NotEnforced
}

// outOfReach reports whether an instance that is past its deadline is another process's
// alone to end: its files could be taken away here, but not its machine.
func (p *Provider) outOfReach(id sandbox.InstanceID, at place) bool {
	p.mu.Lock()
	own := p.instances[id] != nil
	p.mu.Unlock()
	if own || !p.rootless() {
		return false
	}
	lock, err := seize(at)
	if err == nil {
		lock.Close()
	}
	return errors.Is(err, errOwned)
}
