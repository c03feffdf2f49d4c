package native

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// disobedient is a driver that makes a machine other than it was told to, and
// says nothing.
type disobedient struct {
	machine.Driver
	change func(*machine.Spec)
}

func (d disobedient) Start(ctx context.Context, s machine.Spec) (machine.Machine, error) {
	s.Binds = append([]machine.Bind{}, s.Binds...)
	d.change(&s)
	return d.Driver.Start(ctx, s)
}

// An axis is claimed because it was looked at from outside: whatever a machine
// is short of, activation names the axis and leaves nothing.
func TestEnforcementStatement_ActivationBelievesNoDriver(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		for _, c := range []struct {
			name   string
			axis   sandbox.Axis
			driver string // "" is both
			change func(*machine.Spec)
		}{
			{"unsealed", sandbox.AxisMountsSealed, "", func(s *machine.Spec) {
				for i := range s.Binds[1:] {
					s.Binds[i+1].ReadOnly = false
				}
			}},
			{"a sealed mount left out", sandbox.AxisMountsSealed, "", func(s *machine.Spec) {
				for i, b := range s.Binds {
					if b.Destination == data.MountPath {
						s.Binds = append(s.Binds[:i], s.Binds[i+1:]...)
						return
					}
				}
			}},
			{"the whole home in it", sandbox.AxisSandboxIsolation, "", func(s *machine.Spec) {
				s.Binds = append(s.Binds, machine.Bind{Source: filepath.Dir(filepath.Dir(s.Binds[len(s.Binds)-1].Source)), Destination: "/tmp"})
			}},
			{"a directory of the host in it", sandbox.AxisSandboxIsolation, "", func(s *machine.Spec) {
				s.Binds = append(s.Binds, machine.Bind{Source: filepath.Dir(s.Binds[0].Source), Destination: "/tmp", ReadOnly: true})
			}},
			{"a writable init", sandbox.AxisSandboxIsolation, "runsc", func(s *machine.Spec) { s.Binds[0].ReadOnly = false }},
			{"no limits", sandbox.AxisResourceLimits, "", func(s *machine.Spec) { s.Twin.NoLimits = true }},
			{"more memory", sandbox.AxisResourceLimits, "", func(s *machine.Spec) { s.Limits.MemoryBytes *= 2 }},
			{"more cpu", sandbox.AxisResourceLimits, "", func(s *machine.Spec) { s.Limits.CPUMillis *= 2 }},
			{"guest root", sandbox.AxisNonRoot, "runc", func(s *machine.Spec) { s.Twin.RootUser = true }},
			{"capabilities", sandbox.AxisCapabilitiesDropped, "runc", func(s *machine.Spec) { s.Twin.Capabilities = true }},
			{"new privileges", sandbox.AxisNoNewPrivileges, "runc", func(s *machine.Spec) { s.Twin.NewPrivileges = true }},
			{"a network", sandbox.AxisNetworkPolicy, "", func(s *machine.Spec) {
				s.Twin.HostNetwork, s.Twin.Netns = true, "/run/netns/"+attackNetns
			}},
			{"the host's processes", sandbox.AxisSandboxIsolation, "runc", func(s *machine.Spec) { s.Twin.SharedHostProcs = true }},
		} {
			if c.driver != "" && c.driver != p.opt.Driver.Name() || !p.claims(c.axis) || p.rootless() && c.axis == sandbox.AxisNetworkPolicy {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				if c.axis == sandbox.AxisNetworkPolicy {
					liveNetwork(t)
				}
				opt := p.opt
				opt.Driver = disobedient{opt.Driver, c.change}
				other, err := New(opt)
				if err != nil {
					t.Fatal(err)
				}
				id := provision(t, other, request(other, work, data))
				_, err = other.Activate(t.Context(), id)
				if err == nil || !strings.Contains(err.Error(), string(c.axis)+": ") {
					t.Errorf("%v, want a refusal that names %s", err, c.axis)
				}
				if err := other.Destroy(t.Context(), id); err != nil {
					t.Error(err)
				}
				if left := census(t, p); len(left) > 0 {
					t.Errorf("left:\n%s", strings.Join(left, "\n"))
				}
			})
		}
		t.Run("a writable overlay", func(t *testing.T) {
			id := provision(t, p, request(p))
			in, err := p.find(sandbox.OpActivate, id)
			if err != nil {
				t.Fatal(err)
			}
			if err := unmount(t.Context(), in.at.root()); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(in.at.skeleton()); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(in.at.root()); err != nil {
				t.Fatal(err)
			}
			if err := mountRoot(in.at, in.image.Path, in.mountPoints(), nil, true); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Activate(t.Context(), id); err == nil || !strings.Contains(err.Error(), string(sandbox.AxisRootReadOnly)+": ") {
				t.Errorf("%v", err)
			}
			if err := p.Destroy(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	})
}
