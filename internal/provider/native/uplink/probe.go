package uplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// Lack is what the host is short of, and what a person can do about it.
type Lack struct{ What, Remedy string }

func (l *Lack) Error() string { return l.What + " (" + l.Remedy + ")" }

// Lacks says why no machine can have an uplink on this host, or nil. It makes
// nothing. In particular it leaves forwarding as it is: what a host passes on for
// others is its operator's to say.
// Errors: *Lack, joined where there are several; what the host refuses.
func (h *Host) Lacks() error {
	_, err := h.NameServer()
	return errors.Join(err, h.within(lacks))
}

func lacks() error {
	var all []error
	lack := func(remedy, what string, arguments ...any) {
		all = append(all, &Lack{fmt.Sprintf(what, arguments...), remedy})
	}
	if c, err := tables(); err != nil {
		lack("use a kernel with CONFIG_NF_TABLES, and run as root", "the kernel has no nf_tables: %v", err)
	} else if _, err := c.ListTablesOfFamily(nftables.TableFamilyINet); err != nil {
		lack("modprobe nf_tables, or use a kernel with CONFIG_NF_TABLES_INET", "the kernel's nf_tables do not answer: %v", err)
	}
	if err := flowsAnswer(); err != nil {
		lack("modprobe nf_conntrack_netlink, or use a kernel with CONFIG_NF_CT_NETLINK", "the kernel's table of connections does not answer: %v", err)
	}
	routes, err := ipv4Routes()
	if err != nil {
		return errors.Join(append(all, err)...)
	}
	found := false
	for _, r := range routes {
		if r.Dst != nil && r.Dst.IP != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		out, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			continue
		}
		found = true
		// What a machine sends comes in on its own link, of which we say ourselves
		// that it is passed on. What comes back comes in here.
		name := out.Attrs().Name
		setting := filepath.Join("/proc/sys/net/ipv4/conf", name, "forwarding")
		if text, err := os.ReadFile(setting); err != nil || strings.TrimSpace(string(text)) != "1" {
			lack("sysctl -w net.ipv4.conf."+strings.ReplaceAll(name, ".", "/")+".forwarding=1, or net.ipv4.ip_forward=1 as container engines set it",
				"the host passes on nothing that comes in on %s, and so no answer to a machine", name)
		}
	}
	if !found {
		lack("give the host a default route", "the host itself has no way to the internet over IPv4")
	}
	return errors.Join(all...)
}

// resolvFiles are where a host's name servers stand: the second is where a
// resolver that listens on loopback writes down whom it asks itself.
var resolvFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// NameServer is whom machines ask: Resolver, or else the first name server of the
// host that lies at an IPv4 address and not on loopback, where no machine comes.
// Errors: *Lack.
func (h *Host) NameServer() (netip.Addr, error) {
	if h.Resolver.IsValid() {
		if !h.Resolver.Is4() || h.Resolver.IsLoopback() {
			return netip.Addr{}, &Lack{"the name server " + h.Resolver.String() + " is out of a machine's reach", "name one at an IPv4 address that is not loopback"}
		}
		return h.Resolver, nil
	}
	return nameServer(resolvFiles)
}

func nameServer(files []string) (netip.Addr, error) {
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if a, ok := reachable(string(text)); ok {
			return a, nil
		}
	}
	return netip.Addr{}, &Lack{"no name server that a machine could ask is in " + strings.Join(files, " or "),
		"name one there at an IPv4 address that is not loopback"}
}

// reachable is the first name server of a resolv.conf that a machine can reach.
func reachable(text string) (netip.Addr, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(f[1])
		if a = a.Unmap(); err == nil && a.Is4() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() {
			return a, true
		}
	}
	return netip.Addr{}, false
}
