package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/checkfu/checkfu/internal/egress/canary"
	"github.com/checkfu/checkfu/internal/egress/confine"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/egress/lab"
	"github.com/checkfu/checkfu/internal/egress/launch"
)

// The whole of it, confined: a listed host over both families, in bulk, many at
// once; a resolver that has to be asked by TCP; and what is not listed.
func TestAConfinedGuardServes(t *testing.T) {
	g := begin(t, config(t, func(c *guard.Config) {
		for _, name := range []string{"six.test", "long.test"} {
			c.Allow = append(c.Allow, guard.Entry{Host: name, Ports: []int64{8443}})
		}
	}))
	g.lab.Resolver.Script("six.test", lab.Addresses(lab.PublicAddr6))
	g.lab.Resolver.Script("long.test", func(q lab.Query, m *dns.Msg) []*dns.Msg {
		if q.Network == "udp" {
			m.Truncated = true
			return []*dns.Msg{m}
		}
		return lab.Addresses(lab.PublicAddr)(q, m)
	})

	for target, reached := range map[string]netip.Addr{
		"allowed.test:443": lab.PublicAddr, "six.test:8443": lab.PublicAddr6, "long.test:8443": lab.PublicAddr,
	} {
		mark := g.lab.Ledger.Mark()
		c, in, status := g.connect(target)
		if !strings.HasPrefix(status, "HTTP/1.1 200") {
			t.Fatalf("%s: %s", target, status)
		}
		g.echo(c, in, 4<<20)
		if got := g.lab.Ledger.Since(mark); len(got) != 1 || got[0].Local.Addr() != reached {
			t.Errorf("%s: %+v", target, got)
		}
	}

	const many = 200
	var all sync.WaitGroup
	for range many {
		c, in, status := g.connect("allowed.test:8443")
		if !strings.HasPrefix(status, "HTTP/1.1 200") {
			t.Fatal(status)
		}
		all.Go(func() { g.echo(c, in, 100<<10) })
	}
	all.Wait()

	mark := g.lab.Resolver.Mark()
	for _, target := range []string{"other.test:443", "allowed.test:22"} {
		if _, _, status := g.connect(target); !strings.HasPrefix(status, "HTTP/1.1 403") {
			t.Errorf("%s: %s", target, status)
		}
	}
	if asked := g.lab.Resolver.Since(mark); len(asked) != 0 {
		t.Errorf("asked about what is not listed: %v", asked)
	}

	g.stop()
	if _, err := g.log.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	lines, err := guard.ReadLog(g.log)
	if err != nil || len(lines) != 1+2*(3+many)+2 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	notes := lines[0].Notes
	if len(notes) != 3 || notes[0] != fmt.Sprint("user ", launch.GuardUID) || notes[1] == "landlock none" {
		t.Errorf("notes %q", notes)
	}
}

// A02: nothing is open in a guard but its streams, log, listener, poller and
// spare socket; and it began with no environment and no secret in its arguments.
func TestAGuardHoldsNothingElse(t *testing.T) {
	g := begin(t, config(t, nil))
	_, _, _ = g.connect("other.test:443") // it serves: everything that it opens is open
	dir := fmt.Sprintf("/proc/%d", g.process.PID)
	entries, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, "fd", e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the refused connection, just closed
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(target, ":[")
		kinds[kind]++
	}
	sockets := kinds["socket"] // the listener and the spare; the refused connection may linger
	delete(kinds, "socket")
	want := map[string]int{"pipe": 3, "anon_inode": 2, g.log.Name(): 1} // the poller is two
	if !reflect.DeepEqual(kinds, want) || sockets < 2 || sockets > 3 {
		t.Errorf("%v and %d sockets, want %v", kinds, sockets, want)
	}
	for file, want := range map[string]string{
		"environ": "",
		"cmdline": fmt.Sprintf("checkfu-guard\x00--uid\x00%d\x00--gid\x00%d\x00", launch.GuardUID, launch.GuardUID),
	} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
}

// A01 and A08: a run's token that a workload sends along is in no place of the
// guard's but, for a moment, its buffers, and never in its log. The scan is
// alive: what the configuration names is found by it (A17 in small).
func TestAGuardKeepsNoToken(t *testing.T) {
	instance, token := "ins_"+rand.Text(), "cfu_run_"+rand.Text()
	g := begin(t, config(t, func(c *guard.Config) { c.Instance = instance }))
	before, err := canary.Scan(t.Context(), g.process.PID, []byte(token))
	if err != nil || before.Total() != 0 {
		t.Errorf("before: %+v, %v", before, err)
	}
	c, err := g.lab.Workload.Dial(t.Context(), "tcp", g.entry)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\nProxy-Authorization: Bearer %s\r\n\r\n", token)
	if answer, err := io.ReadAll(c); err != nil || bytes.Contains(answer, []byte(token)) {
		t.Errorf("%q, %v", answer, err)
	}
	after, err := canary.Scan(t.Context(), g.process.PID, []byte(token))
	if err != nil || after.Total() != after.Memory {
		t.Errorf("after: %+v, %v", after, err)
	}
	live, err := canary.Scan(t.Context(), g.process.PID, []byte(instance))
	if err != nil || live.Memory == 0 || live.Files < 2 || live.Environ+live.Cmdline+live.Names != 0 {
		t.Errorf("the scan finds nothing: %+v, %v", live, err)
	}
}

// D18 and E32: no list, a pattern, an unknown key or nothing at all: there is no
// guard, and why is said.
func TestABadConfigurationStartsNothing(t *testing.T) {
	good := string(config(t, nil))
	l, err := guard.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	log, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	for what, c := range map[string]struct{ config, said string }{
		"nothing":        {"", ""},
		"no list":        {strings.Replace(good, `"allow":`, `"deny":`, 1), "deny"},
		"a pattern":      {strings.Replace(good, "allowed.test", "*.allowed.test", 1), "host: expected"},
		"too much of it": {good + strings.Repeat(" ", 1<<20), "1048576"},
	} {
		_, err := launch.Launcher{Executable: exe}.Guard(t.Context(), []byte(c.config), listener, log)
		failed, ok := errors.AsType[*launch.StartError](err)
		if !ok || !strings.Contains(failed.Said, c.said) || !strings.HasPrefix(failed.Said, "checkfu-guard: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if info, err := log.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%d bytes of log, %v", info.Size(), err)
	}
}

func TestNeeds(t *testing.T) {
	got := needs(guard.Config{
		Resolver: "[2a00::1]:5353", Limits: guard.Limits{Tunnels: 10},
		Allow: []guard.Entry{{Ports: []int64{65535, 443}}, {Ports: []int64{443}}},
	})
	want := confine.Needs{Ports: []uint16{443, 5353, 65535}, Files: 128 + 1024 + 60}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// echo sends n bytes, ends its half, and wants them back.
func (g *guarding) echo(c net.Conn, in io.Reader, n int) {
	said := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	go func() {
		_, _ = c.Write(said)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, said) {
		g.Errorf("%d bytes of %d, %v", len(got), len(said), err)
	}
	c.Close()
}
