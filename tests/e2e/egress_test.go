package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/lab"
)

// internet is a lab in whose guard's namespace the product runs, as on a host
// whose network and name server those are.
func internet(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := lab.Open(lab.SocketFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.Resolver.Script("allowed.test", lab.Addresses(lab.PublicAddr, lab.PublicAddr6))
	l.Resolver.Script("other.test", lab.Addresses(lab.PublicAddr))
	l.Resolver.Script("inside.test", lab.Addresses(lab.GuardAddr)) // the host itself
	return l
}

// on runs the product in the lab.
func on(t *testing.T, l *lab.Lab, args ...string) result {
	t.Helper()
	var r result
	cmd := onLab(t, args...)
	if err := l.Guard.Do(func() error { r = finish(t, cmd); return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

// onLab prepares the product with the lab's name server.
func onLab(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	product := command(t, args...)
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, resolv, "nameserver "+lab.ResolverAddr.Addr().String()+"\n", 0o644)
	// /etc/resolv.conf may be a link to where nothing is.
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c",
		`mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`, resolv, product.Path}, args...)...)
	cmd.Env, cmd.Dir = product.Env, product.Dir
	return cmd
}

// through asks the proxy of the machine for a destination and prints the status.
func through(target string) string {
	return `printf 'CONNECT ` + target + ` HTTP/1.1\r\nHost: ` + target + `\r\n\r\nhello' | nc -w 5 127.0.0.1 3128 | tr -d '\r' | head -n 3 | tr '\n' ' '; echo;`
}

// TestRunAllow: the listed host is reached through the guard, and only it; with
// the proxy left aside nothing leaves the machine at all, by the count of the far
// side; what was refused is told at the end and stands in the record.
func TestRunAllow(t *testing.T) {
	l := internet(t)
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			mark, packets, asked := l.Ledger.Mark(), l.Tap.Mark(), l.Resolver.Mark()
			direct := lab.PublicAddr.String()
			script := through("allowed.test:8443") + through("other.test:8443") + through("other.test:8443") + through("allowed.test:22") + through(direct+":8443") + through("inside.test:443") +
				`unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
				tried() { name=$1; shift; "$@" >/dev/null 2>&1 </dev/null; code=$?; test $code -ne 126 && test $code -ne 127 && test $code -ne 0 && echo "$name failed"; }
				tried tcp nc -w 2 ` + direct + ` 8443
				tried tcp6 nc -w 2 ` + lab.PublicAddr6.String() + ` 8443
				tried resolver nc -w 2 ` + lab.ResolverAddr.Addr().String() + ` 53
				tried icmp ping -c 1 -W 1 ` + direct + `
				tried icmp6 ping -6 -c 1 -W 1 ` + lab.PublicAddr6.String() + `
				tried dns nslookup allowed.test ` + lab.ResolverAddr.Addr().String() + `
				tried name wget -T 2 -O- http://allowed.test:8443/
				tried host nc -w 2 ` + lab.GuardAddr.String() + ` 443
				tried route route add default gw ` + direct
			record := filepath.Join(t.TempDir(), "record")
			r := on(t, l, boxed(provider, script, "--allow", "allowed.test:8443", "--allow", "INSIDE.test:443", "--json", record)...)
			if r.code != 0 && r.code != 1 {
				t.Fatalf("%+v", r)
			}
			want := []string{
				"HTTP/1.1 200 Connection established  hello", "HTTP/1.1 403", "HTTP/1.1 403", "HTTP/1.1 403", "HTTP/1.1 403", "HTTP/1.1 403",
				"tcp failed", "tcp6 failed", "resolver failed", "icmp failed", "icmp6 failed", "dns failed", "name failed", "host failed", "route failed",
			}
			got := strings.Split(strings.TrimSpace(r.stdout), "\n")
			for i, w := range want {
				if i >= len(got) || !strings.HasPrefix(got[i], w) {
					t.Fatalf("line %d: want %q in\n%s\n%s", i, w, r.stdout, r.stderr)
				}
			}

			settle(t, l)
			for _, a := range l.Ledger.Since(mark) {
				if a.Local.Port() != 8443 || a.Local.Addr() != lab.PublicAddr && a.Local.Addr() != lab.PublicAddr6 || string(a.First) != "hello" {
					t.Errorf("accepted %+v", a)
				}
			}
			if n := len(l.Ledger.Since(mark)); n != 1 {
				t.Errorf("%d connections were accepted", n)
			}
			for flow, n := range l.Tap.Since(packets) {
				resolver := flow.Destination == lab.ResolverAddr && (flow.Protocol == lab.UDP || flow.Protocol == lab.TCP)
				if host := flow.Destination.Addr(); !resolver && (flow.Protocol != lab.TCP || flow.Destination.Port() != 8443 || host != lab.PublicAddr && host != lab.PublicAddr6) {
					t.Errorf("%d packets of %+v", n, flow)
				}
			}
			for _, q := range l.Resolver.Since(asked) {
				if q.Name != "allowed.test" && q.Name != "inside.test" {
					t.Errorf("the resolver was asked for %s", q.Name)
				}
			}

			for _, line := range []string{
				"reached   1 requests let through, 5 refused", "refused   other.test:8443 (not allowlisted, 2×)",
				"refused   allowed.test:22 (port not allowlisted, 1×)", "(literal, 1×)", "refused   inside.test:443 (infra address, 1×)",
			} {
				if !strings.Contains(r.stderr, line) {
					t.Errorf("no %q in\n%s", line, r.stderr)
				}
			}
			text, err := os.ReadFile(record)
			for _, part := range []string{
				`"egress":{"allowed":1,"refused":[{"count":2,"host":"other.test","port":8443,"reason":"not_allowlisted"}`,
				`"network_policy":{"destinations":[{"host":"allowed.test","port":8443},{"host":"inside.test","port":443}],"mode":"allowlist"}`,
				`"egress_certification":"advisory_filter"`,
			} {
				if err != nil || !strings.Contains(string(text), part) {
					t.Errorf("no %s in %s, %v", part, text, err)
				}
			}
		})
	}
}

// TestRunReachesNothingUnasked: without --allow, and with an allowlist of nothing,
// nothing is reached and nobody is asked.
func TestRunReachesNothingUnasked(t *testing.T) {
	l := internet(t)
	for _, provider := range providers {
		for _, c := range []struct{ flags, want string }{{"", "none 1\n"}, {"--network=none", "none 1\n"}, {"--network=allowlist", "http://127.0.0.1:3128 HTTP/1.1 403"}} {
			mark, packets, asked := l.Ledger.Mark(), l.Tap.Mark(), l.Resolver.Mark()
			script := `if test -z "$https_proxy"; then nc -w 2 127.0.0.1 3128 </dev/null >/dev/null 2>&1; echo none $?; else echo -n "$https_proxy "; ` + through("allowed.test:8443") + ` fi`
			r := on(t, l, boxed(provider, script, strings.Fields(c.flags)...)...)
			if r.code != 0 || !strings.HasPrefix(r.stdout, c.want) {
				t.Errorf("%s %s: %+v", provider, c.flags, r)
			}
			settle(t, l)
			if got := fmt.Sprint(l.Ledger.Since(mark), l.Tap.Since(packets), l.Resolver.Since(asked)); got != "[] map[] []" {
				t.Errorf("%s %s: %s", provider, c.flags, got)
			}
		}
	}
}

// TestRunAllow_TheGuardIsKilled: with the guard of a run killed nothing is reached
// any more, by no way, and the end of the run says why.
func TestRunAllow_TheGuardIsKilled(t *testing.T) {
	l := internet(t)
	ask := through("allowed.test:8443")
	cmd := onLab(t, boxed("native:runc", ask+"read go; "+ask+"nc -w 2 "+lab.PublicAddr.String()+" 8443 </dev/null || echo unreachable", "--allow", "allowed.test:8443")...)
	var errs strings.Builder
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Guard.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Errorf("%q, %v", line, err)
	}
	mark, killed := l.Ledger.Mark(), 0
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, file := range children {
		pids, _ := os.ReadFile(file)
		for pid := range strings.FieldsSeq(string(pids)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.HasPrefix(string(line), "checkfu-guard\x00") {
				n, _ := strconv.Atoi(pid)
				if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				killed++
			}
		}
	}
	if killed != 1 {
		t.Errorf("%d guards", killed)
	}
	in.Write([]byte("go\n"))
	in.Close()
	rest, _ := io.ReadAll(said)
	if err := cmd.Wait(); err != nil || strings.Contains(string(rest), "HTTP") || !strings.HasSuffix(string(rest), "unreachable\n") {
		t.Errorf("%q, %v", rest, err)
	}
	settle(t, l)
	if got := l.Ledger.Since(mark); len(got) > 0 {
		t.Errorf("accepted %+v", got)
	}
	if !strings.Contains(errs.String(), "everything since the guard ended") {
		t.Errorf("%s", errs.String())
	}
}

// settle proves that ledger and tap are live and have seen all there was.
func settle(t *testing.T, l *lab.Lab) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := l.Settle(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSessionAllow: what the guard of a session refused is told after each command
// that asked, and in all when the session ends, also of one whose keeper is gone.
func TestSessionAllow(t *testing.T) {
	l := internet(t)
	start := func(provider string) string {
		r := on(t, l, "session", "start", "--image", "busybox", "--provider", provider, "--allow", "allowed.test:8443", "--quiet")
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return strings.TrimSpace(r.stdout)
	}
	exec := func(id, script string) result {
		return on(t, l, "session", "exec", id, "--", "sh", "-c", script)
	}
	for _, provider := range providers {
		id := start(provider)
		if r := exec(id, through("allowed.test:8443")); r.code != 0 || !strings.Contains(r.stdout, "200") || r.stderr != "" {
			t.Errorf("%s: %+v", provider, r)
		}
		record := filepath.Join(t.TempDir(), "record")
		r := on(t, l, "session", "exec", id, "--json", record, "--", "sh", "-c", through("other.test:8443")+through("other.test:8443"))
		want := "checkfu: session " + id + "\n  reached   0 requests let through, 2 refused\n  refused   other.test:8443 (not allowlisted, 2×)\n"
		if r.code != 0 || r.stderr != want {
			t.Errorf("%s: %+v, want %q", provider, r, want)
		}
		if text, err := os.ReadFile(record); err != nil || !strings.Contains(string(text), `"egress":{"allowed":0,"refused":[{"count":2,"host":"other.test","port":8443,"reason":"not_allowlisted"}]}`) {
			t.Errorf("%s: %s, %v", provider, text, err)
		}
		r = on(t, l, "session", "rm", "--json", id)
		if r.code != 0 || !strings.Contains(r.stderr, "  reached   1 requests let through, 2 refused\n") ||
			!strings.Contains(r.stdout, `"egress":{"allowed":1,"refused":[{"count":2,"host":"other.test","port":8443,"reason":"not_allowlisted"}]}`) || !strings.Contains(r.stdout, `"state":"ended"`) {
			t.Errorf("%s: %+v", provider, r)
		}
	}
	id := start("native:runc")
	exec(id, through("other.test:8443"))
	ls := on(t, l, "session", "ls", "--json")
	_, keeper, _ := strings.Cut(ls.stdout, `"keeper_pid":`)
	pid, err := strconv.Atoi(keeper[:strings.IndexAny(keeper, ",}")])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := on(t, l, "session", "rm", id); r.code != 0 || r.stdout != id+"\n" || !strings.Contains(r.stderr, "0 requests let through, 1 refused") {
		t.Errorf("%+v", r)
	}
}
