package matrix

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/lab"
)

// topologyDigest is the digest of what a lab is made of, as the kernel tells it:
// of each namespace the links, their addresses and the routes, a line each. What a
// kernel draws or does by itself in its own time (hardware addresses, carriers, the
// routes to an address of its own, multicast) is left out, so that the same lab has
// the same digest.
func topologyDigest(l *lab.Lab) (string, error) {
	lines := []string{"topology " + string(l.Topology)}
	for _, n := range []*lab.Namespace{l.Workload, l.Guard, l.Relay, l.Public, l.Plane, l.Neighbor, l.Outside} {
		err := n.Do(func() error {
			found, err := dump(n.Name)
			lines = append(lines, found...)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("dump namespace %s: %w", n.Name, err)
		}
	}
	return canonical.Digest([]byte(strings.Join(lines, "\n") + "\n")), nil
}

func dump(name string) ([]string, error) {
	var lines []string
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Index] = link.Name
		lines = append(lines, fmt.Sprintf("%s link %s %s", name, link.Name, link.Flags&^net.FlagRunning))
		addresses, err := link.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			lines = append(lines, fmt.Sprintf("%s address %s %s", name, link.Name, a))
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.Table == unix.RT_TABLE_LOCAL || r.Type == unix.RTN_MULTICAST {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s route %v via %v over %s type %d table %d", name, r.Dst, r.Gw, names[r.LinkIndex], r.Type, r.Table))
	}
	slices.Sort(lines)
	return lines, nil
}
