package uplink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Error is a step that failed.
type Error struct {
	Step string
	Err  error
}

func (e *Error) Error() string { return "uplink: " + e.Step + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Host is the network that machines are let out through.
type Host struct {
	// Resolver is the name server of the machines, an IPv4 address; zero is the
	// host's own, see Host.NameServer. The machine may reach it at port 53 wherever
	// it lies.
	Resolver netip.Addr
	// Within calls a function on a thread that is in the host's network namespace;
	// nil is that of this process.
	Within func(func() error) error
}

// Device is the name of the machine's one interface beside lo.
const Device = "eth0"

// Uplink is the way out of one machine.
type Uplink struct {
	host    *Host
	id      string
	device  string // the host's end
	address netip.Addr
	inside  *os.File // the machine's namespace
	done    chan struct{}
	watched chan struct{} // closed when nobody watches any more
}

// links is the block that addresses are taken from, four for each link: network,
// host, machine, broadcast. It is set apart for measuring networks with, so it is
// in nobody's way but another tool's that thought the same, and in no way public.
var links = netip.MustParsePrefix("198.18.0.0/15")

// maxLinks is how many there is room for.
const maxLinks = 1 << (32 - 15 - 2)

// Open makes a machine's namespace with a link out of it. id names the machine,
// 32 hex characters. Nothing is left on an error.
//
// Blocks: as long as the kernel takes to make links and tables, some milliseconds on
// a quiet host; it waits for nobody.
// Errors: *Error.
func (h *Host) Open(id string) (*Uplink, error) {
	resolver, err := h.NameServer()
	if err != nil {
		return nil, &Error{"find a name server", err}
	}
	u := &Uplink{host: h, id: id, done: make(chan struct{}), watched: make(chan struct{})}
	if u.inside, err = emptyNamespace(); err != nil {
		return nil, &Error{"make a network namespace", err}
	}
	if err = h.within(func() error { return u.link(resolver) }); err != nil {
		u.inside.Close()
		return nil, &Error{"link the machine to its host", errors.Join(err, h.Remove(id))}
	}
	return u, nil
}

// link lays the link, the machine's end first but for the last step: nothing
// passes before the fence stands.
func (u *Uplink) link(resolver netip.Addr) error {
	mtu, taken, err := routes()
	if err != nil {
		return err
	}
	slot, err := u.claim(mtu, taken)
	if err != nil {
		return err
	}
	host, machine := ends(slot)
	u.address = machine
	end, err := netlink.LinkByName(u.device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(end, alias(u.id)); err != nil {
		return fmt.Errorf("name the link: %w", err)
	}
	if err := loadFence(fence{id: u.id, device: u.device, machine: machine, resolver: resolver, most: maxConnections}); err != nil {
		return fmt.Errorf("load the table: %w", err)
	}
	if err := forget(machine); err != nil { // of one that had the address, and whose owner died
		return err
	}
	if err := settings(map[string]string{
		"ipv4/conf/%s/forwarding":       "1", // of what comes from this link, and of nothing else
		"ipv4/conf/%s/rp_filter":        "1",
		"ipv4/conf/%s/accept_redirects": "0",
		"ipv4/conf/%s/send_redirects":   "0",
		"ipv4/conf/%s/proxy_arp":        "0",
	}, u.device); err != nil {
		return err
	}
	if err := noIPv6(u.device); err != nil {
		return err
	}
	if err := address(end, host); err != nil {
		return err
	}
	if err := onThread(func() error { return u.within(machine, host, mtu) }); err != nil {
		return fmt.Errorf("inside: %w", err)
	}
	return netlink.LinkSetUp(end)
}

// claim makes the pair under the first free name.
func (u *Uplink) claim(mtu int, taken []netip.Prefix) (slot int, err error) {
	first := rand.IntN(maxLinks) // so that names are not used again at once
	for i := range maxLinks {
		slot = (first + i) % maxLinks
		if used(slot, taken) {
			continue
		}
		u.device = device(slot)
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.MTU = u.device, mtu
		err = netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attributes, PeerName: Device, PeerNamespace: netlink.NsFd(int(u.inside.Fd())),
		})
		if !errors.Is(err, unix.EEXIST) {
			return slot, wrap("make a veth pair", err)
		}
	}
	return 0, fmt.Errorf("no room for another link: expected fewer than %d", maxLinks)
}

// within sets up the machine's own end.
func (u *Uplink) within(machine, gateway netip.Addr, mtu int) error {
	if err := unix.Setns(int(u.inside.Fd()), unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := noIPv6("all", "default", "lo", Device); err != nil {
		return err
	}
	// A program without capabilities may ask whether somebody is there.
	if err := settings(map[string]string{"ipv4/%s": "0 2147483647"}, "ping_group_range"); err != nil {
		return err
	}
	for _, name := range []string{"lo", Device} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if name == Device {
			if err := errors.Join(netlink.LinkSetMTU(link, mtu), address(link, machine)); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return wrap("default route", netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}))
}

// Namespace is the path under which a runtime that this process starts can join
// the machine's namespace, for as long as the uplink is open.
func (u *Uplink) Namespace() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), u.inside.Fd())
}

// Address is the machine's.
func (u *Uplink) Address() netip.Addr { return u.address }

// Holds says why the machine is not, or no longer, fenced and linked as Open
// left it.
// Errors: *Error.
func (u *Uplink) Holds() error {
	err := u.host.within(func() error {
		link, err := netlink.LinkByName(u.device)
		if err != nil {
			return err
		}
		if got := link.Attrs().Alias; got != alias(u.id) {
			return fmt.Errorf("link %s: expected that of %s, got %q", u.device, u.id, got)
		}
		return standing(u.id)
	})
	if err != nil {
		return &Error{"look at the fence", err}
	}
	return nil
}

// Watch cuts the link when the fence does not stand any more, and calls lost,
// once: whoever loads the rules of a host anew takes ours away with the rest. It
// looks at each tick and returns at once; Close ends it.
func (u *Uplink) Watch(tick *time.Ticker, lost func(error)) {
	go func() {
		defer close(u.watched)
		defer tick.Stop()
		for {
			select {
			case <-u.done:
				return
			case <-tick.C:
			}
			if err := u.lost(); err != nil {
				_ = u.host.within(func() error { return cut(u.id) })
				lost(err)
				return
			}
		}
	}()
}

// lost is why the fence does not hold, asked again where it seems so: a list that
// the kernel gave while other tables came and went may be short of some of it.
func (u *Uplink) lost() (err error) {
	for range 3 {
		if err = u.Holds(); err == nil {
			return nil
		}
	}
	return err
}

// Close removes the link, what the host keeps in mind of its connections, and then
// the fence. The machine's processes should have ended: to one that lives the network
// is gone.
//
// Blocks: as Open does.
// Errors: *Error; it may be called again.
func (u *Uplink) Close() error {
	select {
	case <-u.done:
	default:
		close(u.done)
	}
	err := u.host.remove(u.id, func() error { return forget(u.address) })
	if closed := u.inside.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// Remove takes away what is left of the uplink of an id, whoever made it: the
// link first. Nothing left is no error, also where the kernel knows no tables.
// Errors: *Error.
func (h *Host) Remove(id string) error {
	return h.remove(id, func() error { return forgetLost(id) })
}

// remove takes the table last: it is what a second try reads the address from.
func (h *Host) remove(id string, forget func() error) error {
	err := h.within(func() error {
		if err := cut(id); err != nil {
			return fmt.Errorf("remove the link: %w", err)
		}
		if err := forget(); err != nil {
			return err
		}
		return wrap("remove the table", unloadFence(id))
	})
	if err != nil {
		return &Error{"remove what is left of " + id, err}
	}
	return nil
}

// cut removes the link of an id.
func cut(id string) error {
	all, err := dump(netlink.LinkList)
	if err != nil {
		return err
	}
	for _, link := range all {
		if link.Attrs().Alias != alias(id) {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

func alias(id string) string { return "checkfu " + id }

func device(slot int) string { return "checkfu" + strconv.Itoa(slot) }

// ends are the addresses of a link.
func ends(slot int) (host, machine netip.Addr) {
	base := links.Addr().As4()
	n := slot * 4
	at := func(i int) netip.Addr {
		return netip.AddrFrom4([4]byte{base[0], base[1] + byte(n>>16), byte(n >> 8), byte(n + i)})
	}
	return at(1), at(2)
}

// place is the slot of a machine's address.
func place(machine netip.Addr) int {
	a, base := machine.As4(), links.Addr().As4()
	return (int(a[1]-base[1])<<16 | int(a[2])<<8 | int(a[3])) / 4
}

// used reports whether the host has other plans for the addresses of a slot.
func used(slot int, taken []netip.Prefix) bool {
	host, _ := ends(slot)
	block, _ := host.Prefix(30)
	for _, p := range taken {
		if p.Overlaps(block) {
			return true
		}
	}
	return false
}

func (h *Host) within(f func() error) error {
	if h.Within != nil {
		return h.Within(f)
	}
	return f()
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
