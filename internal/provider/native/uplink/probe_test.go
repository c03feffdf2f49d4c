package uplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// Each thing that a host is short of is said by name, and with what to do.
func TestLacks(t *testing.T) {
	l, h := world(t)
	forward(t, l, "0")
	if err := h.Lacks(); err == nil || !strings.Contains(err.Error(), "net.ipv4.conf.up.forwarding=1") {
		t.Errorf("no forwarding: %v", err)
	}
	if err := l.Guard.Set("ipv4/conf/up/forwarding", "1"); err != nil {
		t.Fatal(err)
	}
	if err := h.Lacks(); err != nil {
		t.Errorf("forwarding of one link is enough: %v", err)
	}
	u := open(t, h, idA)
	if _, err := u.dial("tcp4", at("45.33.32.10", 443)); err != nil {
		t.Errorf("forwarding of one link is enough: %v", err)
	}
	alone := &Host{Resolver: h.Resolver, Within: l.Workload.Do}
	if err := alone.Lacks(); err == nil || !strings.Contains(err.Error(), "default route") {
		t.Errorf("no route: %v", err)
	}
	loopback := &Host{Resolver: netip.MustParseAddr("127.0.0.53"), Within: h.Within}
	if _, ok := errors.AsType[*Lack](loopback.Lacks()); !ok {
		t.Errorf("a name server on loopback: %v", loopback.Lacks())
	}
}

func TestNameServer(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{"nameserver 127.0.0.53\noptions edns0\n", "nameserver 9.9.9.9\n"}, "9.9.9.9"},
		{[]string{"# nameserver 1.1.1.1\nsearch a\n\tnameserver\t9.9.9.9 # x\nnameserver 8.8.8.8\n"}, "9.9.9.9"},
		{[]string{"nameserver ::1\nnameserver fd00::1\nnameserver 10.0.0.1\n"}, "10.0.0.1"},
		{[]string{"nameserver ::ffff:8.8.4.4\n"}, "8.8.4.4"},
		{[]string{"nameserver 0.0.0.0\nnameserver\nnameserver dns.test\n"}, ""},
		{nil, ""},
	} {
		var paths []string
		for i, text := range c.files {
			path := fmt.Sprintf("%s/%d", t.TempDir(), i)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		got, err := nameServer(append(paths, t.TempDir()+"/none"))
		if c.want == "" && err == nil || c.want != "" && got.String() != c.want {
			t.Errorf("%q: %s, %v", c.files, got, err)
		}
	}
}

func FuzzReachable(f *testing.F) {
	for _, seed := range []string{"nameserver 127.0.0.53\nnameserver 9.9.9.9\n", "nameserver ::ffff:8.8.4.4", "nameserver fe80::1%eth0\n", "\x00nameserver 1\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := reachable(text)
		if ok != a.IsValid() || ok && (!a.Is4() || a.IsLoopback() || !strings.Contains(text, "nameserver")) {
			t.Errorf("%q: %s, %v", text, a, ok)
		}
	})
}
