package native

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
	"github.com/checkfu/checkfu/internal/provider/native/userns/usernstest"
)

// envRootless names the directory of a child that is an ordinary user's.
const envRootless = "CHECKFU_TEST_ROOTLESS"

// rootlessMain runs tests on the user's machines, inside.
func rootlessMain(m *testing.M, dir string) int {
	if !userns.Inside() {
		code, err := userns.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return code
	}
	var err error
	if shared.dir, err = userns.Bind(dir); err != nil {
		fmt.Println(err)
		return 1
	}
	driverNames = []string{machine.Rootless}
	return m.Run()
}

// TestRootless: what root's machines are attacked with, the machines of an ordinary
// user withstand too, on each axis that they claim. The same tests run in a child
// which is such a user's, and leave nothing of it.
func TestRootless(t *testing.T) {
	u := usernstest.New(t, true)
	setup(t)
	dir := filepath.Join(u.Home, "shared")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, u.UID, u.UID); err != nil {
		t.Fatal(err)
	}
	archive := imagetest.Busybox(t, shared.dir)
	for _, path := range []string{archive, filepath.Join(shared.dir, "bin-checkfu-init"), buildStatic(t, "./testdata/suid"), buildStatic(t, "./testdata/hostile")} {
		if err := os.Rename(u.Give(t, path, 0o755), filepath.Join(dir, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := []string{
		"TestEnforcementStatement_EachAxisHoldsAgainstAnAttackFromInside", "TestEnforcementStatement_NoWayOutFromInside",
		"TestEnforcementStatement_NoCoreDump", "TestEnforcementStatement_WhatListensOnTheHostIsNotReached", "TestEnforcementStatement_ActivationBelievesNoDriver",
		"TestExecute_NoNamespaceHidesASurvivor", "TestStageSealExecute",
	}
	cmd := u.Command(u.Give(t, self, 0o755), "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(cmd.Env, envRootless+"="+dir, "TMPDIR="+u.Home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s did not pass:\n%s", name, out)
		}
	}
	if left := u.Left(t); len(left) > 0 {
		t.Errorf("left: %s", strings.Join(left, "\n"))
	}
}

// What this process listens on, in the host's own network, no machine reaches, and of
// its links it sees none.
func TestEnforcementStatement_WhatListensOnTheHostIsNotReached(t *testing.T) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	c, err := net.Dial("tcp4", "127.0.0.1:"+port) // the control
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		for _, a := range addresses {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
				s, err := p.Execute(t.Context(), id, shell("nc -w 2 "+ip.IP.String()+" "+port+" </dev/null"))
				if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode == 0 {
					t.Errorf("%s: %s %s %v", ip.IP, showExit(s), s.Stderr, err)
				}
			}
		}
		if s := sh(t, p, id, "grep -c : /proc/net/dev"); strings.TrimSpace(string(s.Stdout)) != "1" && strings.TrimSpace(string(s.Stdout)) != "0" {
			t.Errorf("interfaces: %s", s.Stdout)
		}
		l.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
		if c, err := l.Accept(); err == nil {
			t.Errorf("%s came through", c.RemoteAddr())
		}
	})
}
