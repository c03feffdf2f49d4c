package guard_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The tests run in a network namespace of their own, in which a guard dials
// without any seam: behind its one link lies a small internet (see internet_test.go)
// whose addresses are truly public by their number, and truly private ones.
// Both namespaces are gone with the process.
const insideEnv = "CHECKFU_GUARD_TEST_INSIDE"

func TestMain(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz") }) {
		os.Exit(m.Run()) // parsers need no network, and their workers are many
	}
	if os.Getenv(insideEnv) != "" {
		if err := raise(); err != nil {
			fmt.Fprintln(os.Stderr, "guard tests: no internet:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if os.Getenv(helperEnv) != "" { // a child of a test, already where it should be
		os.Exit(helper())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread() // the thread's end is the child's
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "guard tests: no network namespace:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// far is the namespace of the internet.
var far netns.NsHandle

// inFar opens something in the far namespace. A socket stays where it was made.
func inFar[T any](open func() (T, error)) (T, error) {
	type result struct {
		made T
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := netns.Set(far); err != nil {
			done <- result{err: err}
			return
		}
		made, err := open()
		done <- result{made, err}
	}()
	r := <-done
	return r.made, r.err
}

// raise makes the far namespace, the link to it and its addresses.
func raise() error {
	made := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		far, err = netns.New()
		made <- err
	}()
	if err := <-made; err != nil {
		return err
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up"}, PeerName: "net", PeerNamespace: netlink.NsFd(far)}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	near, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer near.Close()
	beyond, err := netlink.NewHandleAt(far)
	if err != nil {
		return err
	}
	defer beyond.Close()
	for _, side := range []struct {
		handle    *netlink.Handle
		link      string
		addresses []string
	}{
		{near, "lo", []string{guardPublic + "/32"}},
		{near, "up", []string{"10.99.0.1/30", "fd99::1/64"}},
		{beyond, "lo", nil},
		{beyond, "net", []string{"10.99.0.2/30", "fd99::2/64"}},
	} {
		l, err := side.handle.LinkByName(side.link)
		if err != nil {
			return err
		}
		if err := side.handle.LinkSetUp(l); err != nil {
			return err
		}
		for _, text := range side.addresses {
			a, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			a.Flags = syscall.IFA_F_NODAD
			if err := side.handle.AddrAdd(l, a); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
	}
	up, err := near.LinkByName("up")
	if err != nil {
		return err
	}
	for _, gateway := range []string{"10.99.0.2", "fd99::2"} {
		if err := near.RouteAdd(&netlink.Route{LinkIndex: up.Attrs().Index, Gw: net.ParseIP(gateway), Dst: everything(gateway)}); err != nil {
			return fmt.Errorf("route: %w", err)
		}
	}
	_, unreachable, _ := net.ParseCIDR(dead + "/32")
	if err := near.RouteAdd(&netlink.Route{Dst: unreachable, Type: syscall.RTN_UNREACHABLE}); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	lo, err := beyond.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, text := range farBlocks {
		_, block, err := net.ParseCIDR(text)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: block, Type: syscall.RTN_LOCAL, Scope: syscall.RT_SCOPE_HOST, Table: syscall.RT_TABLE_LOCAL}
		if err := beyond.RouteAdd(route); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return internet.open()
}

func everything(gateway string) *net.IPNet {
	if net.ParseIP(gateway).To4() != nil {
		return &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	}
	return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
}
