package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
	"github.com/checkfu/checkfu/sandbox"
)

// The test binary is the guard where it is started as one.
func TestMain(m *testing.M) {
	if os.Args[0] == string(launch.GuardProgram) {
		main()
	}
	os.Exit(m.Run())
}

func config(t *testing.T, change func(*guard.Config)) []byte {
	t.Helper()
	c := guard.Config{
		V: 1, Instance: "ins_guard", PolicyRevision: sandbox.Digest("sha256:" + strings.Repeat("0", 64)),
		Resolver:  lab.ResolverAddr.String(),
		Allow:     []guard.Entry{{Host: "allowed.test", Ports: []int64{443, 8443}, Mode: "opaque"}},
		ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}
	if change != nil {
		change(&c)
	}
	text, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// guarding is a guard between the workload and the internet of a lab.
type guarding struct {
	*testing.T
	lab     *lab.Lab
	process *launch.Process
	log     *os.File
	entry   netip.AddrPort
}

func begin(t *testing.T, config []byte) *guarding {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := lab.Open(lab.InsideListener)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.Resolver.Script("allowed.test", lab.Addresses(lab.PublicAddr, lab.PublicAddr6))
	door, err := l.GuardDoor()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(door.Close)
	log, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	g := &guarding{T: t, lab: l, log: log, entry: door.Entry}
	if err := l.Guard.Do(func() (err error) {
		g.process, err = launch.Launcher{Executable: exe}.Guard(t.Context(), config, door.Listener, log)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.stop() })
	return g
}

func (g *guarding) stop() {
	if err := g.process.Stop(context.Background()); err != nil || g.process.Err() != nil || g.process.Said() != "" {
		g.Error(err, g.process.Err(), g.process.Said())
	}
}

// connect asks for a tunnel and answers the status line.
func (g *guarding) connect(target string) (net.Conn, *bufio.Reader, string) {
	g.Helper()
	c, err := g.lab.Workload.Dial(g.Context(), "tcp", g.entry)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	in := bufio.NewReader(c)
	status, err := in.ReadString('\n')
	if err != nil {
		g.Fatal(err)
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == "\r\n" {
			return c, in, strings.TrimSpace(status)
		}
	}
}
