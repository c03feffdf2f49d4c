package uplink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// emptyNamespace makes a network namespace that lives by its descriptor.
func emptyNamespace() (ns *os.File, err error) {
	err = onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return ns, err
}

// onThread runs f on a thread that may go into other namespaces and comes back;
// one that cannot is never used again.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// address gives a link one address of a net of four.
func address(link netlink.Link, a netip.Addr) error {
	return wrap("address "+a.String(), netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(30, 32)}}))
}

// settings writes settings of the thread's namespace, a path below net each.
func settings(values map[string]string, name string) error {
	for path, value := range values {
		file := "/proc/sys/net/" + fmt.Sprintf(path, name)
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", file, value, err)
		}
	}
	return nil
}

// noIPv6 keeps links without any IPv6. A kernel that has none needs no telling.
func noIPv6(names ...string) error {
	for _, name := range names {
		err := settings(map[string]string{"ipv6/conf/%s/disable_ipv6": "1"}, name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// routes says what packets out of the host may be as large as, and which
// addresses are somebody's already.
func routes() (mtu int, taken []netip.Prefix, err error) {
	all, err := ipv4Routes()
	if err != nil {
		return 0, nil, err
	}
	mtu = 1500
	for _, r := range all {
		if r.Dst != nil && r.Dst.IP != nil {
			a, ok := netip.AddrFromSlice(r.Dst.IP.To4())
			if bits, _ := r.Dst.Mask.Size(); ok && bits > 0 {
				taken = append(taken, netip.PrefixFrom(a, bits))
				continue
			}
		}
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
			mtu = min(mtu, max(link.Attrs().MTU, 576))
		}
	}
	return mtu, taken, nil
}

func ipv4Routes() ([]netlink.Route, error) {
	all, err := dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	return all, wrap("list routes", err)
}

// dump asks until nothing changed while the kernel answered: links of other
// machines come and go.
func dump[T any](ask func() ([]T, error)) (all []T, err error) {
	for range 1000 {
		if all, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
