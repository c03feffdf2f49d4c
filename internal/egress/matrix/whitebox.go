package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/policy"
)

// boxCases are those that change what is around the guard, or inside it.
func boxCases() []Case {
	p := []Fact{Address}
	return []Case{
		{ID: "P83", Title: "a hosts file in the guard's root says another address", Facts: p, alone: true, hosts: []string{"p83.test"}, live: live(private), run: hostsFile},
		{ID: "P84", Title: "a search domain in the guard's root", Facts: p, alone: true, hosts: []string{"p84.test"}, run: searchDomain},
		{ID: "P88", Title: "the dialer is handed an address that nobody judged", Facts: p, alone: true, hosts: []string{"p88.test"}, live: live(private), run: func(t *trial) error {
			return t.struck("fault-pin", "p88.test", want{status: []int{403}, reason: policy.ReasonConnectNotPublic, asked: []string{"p88.test"}})
		}},
		{ID: "P89", Title: "the kernel's gate alone, behind a guard without a classifier", Facts: p, alone: true, hosts: []string{"p89.test"}, live: live(private), run: gateAlone},
		{ID: "P90", Title: "the connected peer is not the address that was chosen", Facts: p, alone: true, hosts: []string{"p90.test"}, run: func(t *trial) error {
			return t.struck("fault-peer", "p90.test", want{
				status: []int{403}, reason: policy.ReasonConnectNotPublic, accepts: at(public), silent: true, asked: []string{"p90.test"},
			})
		}},
	}
}

// struck asks a guard that a fault was laid on.
func (t *trial) struck(fault, host string, w want) error {
	own, err := t.with(fault).own(nothing)
	if err != nil {
		return err
	}
	own.answers(host, public.Addr())
	return errors.Join(own.request(connectHead(host+":443"), w, nil), own.guard.end())
}

// gateAlone first shows that this guard reaches the address without the gate.
func gateAlone(t *trial) error {
	b := *t.bench
	b.start = altered("no-classifier")
	own, err := (&trial{bench: &b, ctx: t.ctx}).own(nothing)
	if err != nil {
		return err
	}
	own.answers("p89.test", private)
	err = own.behindGate()
	return errors.Join(err, own.guard.end())
}

func (t *trial) behindGate() error {
	ask := func() (*trace, error) {
		return t.watch(func() error {
			c, err := dial(t.ctx, t.lab, t.guard.door.Entry)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.ask(connectHead("p89.test:443"))
			return err
		})
	}
	if t.configuration == GuardOnly {
		control, err := ask()
		if err == nil {
			err = control.reached(netip.AddrPortFrom(private, 443))
		}
		if err != nil {
			return blind(fmt.Errorf("the control did not reach the address: %w", err))
		}
		gate, err := t.lab.LoadGate(special())
		if err != nil {
			return blind(err)
		}
		defer gate.Unload()
	}
	s, err := ask()
	if err != nil {
		return err
	}
	return errors.Join(s.reached(), s.explained())
}

func hostsFile(t *trial) error {
	return t.rooted(map[string]string{"/etc/hosts": private.String() + " p83.test allowed.test\n"}, func(t *trial) error {
		t.answers("p83.test", public.Addr())
		return t.passes("p83.test:443", public)
	})
}

// searchDomain holds that the name is asked for as it is and with nothing behind
// it, also where it is not found.
func searchDomain(t *trial) error {
	return t.rooted(map[string]string{"/etc/resolv.conf": "search evil.test\noptions ndots:5\nnameserver 45.33.32.54\n"}, func(t *trial) error {
		t.lab.Resolver.Script("p84.test", nil)
		if err := t.resolves("p84.test", policy.ReasonResolveFailed, 502); err != nil {
			return err
		}
		t.answers("p84.test", public.Addr())
		return t.passes("p84.test:443", public)
	})
}

// rooted starts a guard that has other files in its root, and nobody else does.
func (t *trial) rooted(files map[string]string, f func(*trial) error) error {
	dir, err := lab.Scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := *t.bench
	b.start = func(ctx context.Context, config []byte, listener, log *os.File) (p *process, err error) {
		err = t.lab.Guard.Spend(func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			for path, text := range files {
				source := filepath.Join(dir, filepath.Base(path))
				if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
					return err
				}
				if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
					return skipError{fmt.Sprintf("no file can be laid over %s here: %v", path, err)}
				}
			}
			p, err = t.start(ctx, config, listener, log)
			return err
		})
		return p, err
	}
	own, err := (&trial{bench: &b, ctx: t.ctx}).own(nothing)
	if err != nil {
		return err
	}
	return errors.Join(f(own), own.guard.end())
}
