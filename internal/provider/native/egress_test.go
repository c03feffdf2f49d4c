package native

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// An allowlist machine has one way out: through the guard. It is told where that
// is, and has nothing else that a machine without a network has not.
func TestAllowlist_OneWayOut(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activate(t, guarded(p, "plain"), allowing(p, listed))
		for _, c := range []struct{ script, want string }{
			{ask("allowed.test:443"), "HTTP/1.1 200 OK\r\n\r\nthroughstatus 0\n"},
			{ask("other.test:443"), "HTTP/1.1 403 Forbidden\r\n\r\nstatus 0\n"},
			{ask("allowed.test:8443"), "HTTP/1.1 403 Forbidden\r\n\r\nstatus 0\n"},
			{"echo $http_proxy $https_proxy $all_proxy $HTTP_PROXY $HTTPS_PROXY $ALL_PROXY", strings.TrimSpace(strings.Repeat("http://127.0.0.1:3128 ", 6)) + "\n"},
			{"echo $no_proxy $NO_PROXY", "localhost,127.0.0.1,::1 localhost,127.0.0.1,::1\n"},
			{"ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev", "1\n"},
			{"ls /run/checkfu/egress; touch /run/checkfu/egress/x 2>/dev/null || rm -f /run/checkfu/egress/guard.sock 2>/dev/null || echo sealed", "guard.sock\nsealed\n"},
			{"nc -w 2 8.8.8.8 53 </dev/null 2>/dev/null || echo unreachable", "unreachable\n"},
		} {
			if s := sh(t, p, id, c.script); string(s.Stdout) != c.want {
				t.Errorf("%s:\ngot  %q\nwant %q\n%s", c.script, s.Stdout, c.want, s.Stderr)
			}
		}
		got, err := p.Decisions(t.Context(), id, 0)
		if got.Through == 0 {
			t.Error("nothing was read")
		}
		got.Through = 0
		want := Decisions{Allowed: 1, Refused: []Refusal{{"allowed.test:8443", 0, "not_allowlisted", 1}, {"other.test:443", 0, "not_allowlisted", 1}}}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("decisions %+v, %v", got, err)
		}
		if r, err := readRecord(p.place(id)); err != nil || !r.Guarded {
			t.Errorf("record %+v, %v", r, err)
		}
		if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
	})
}

// What the caller sets goes above what the machine is told.
func TestAllowlist_TheCallersEnvironmentIsTheCallers(t *testing.T) {
	p := guarded(newProvider(t, "runc"), "plain")
	id := activate(t, p, allowing(p))
	c := shell("echo $https_proxy")
	c.Environment = map[string]string{"https_proxy": "mine"}
	if s, err := p.Execute(t.Context(), id, c); err != nil || string(s.Stdout) != "mine\n" {
		t.Errorf("%q, %v", s.Stdout, err)
	}
}

// With the guard gone nothing is reached, also nothing that was before.
func TestAllowlist_ADeadGuardIsNoWayOut(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activate(t, guarded(p, "plain"), allowing(p, listed))
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(in.guard.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(t, in.guard)
		for range 2 {
			if s := sh(t, p, id, ask("allowed.test:443")); strings.Contains(string(s.Stdout), "HTTP") {
				t.Errorf("%q", s.Stdout)
			}
		}
		if got, err := p.Decisions(t.Context(), id, 0); err != nil || !got.Ended {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
	})
}

// A log that grows beyond its bound ends its guard, and a short one does not.
func TestBoundLog(t *testing.T) {
	at := place{t.TempDir()}
	log, err := os.Create(at.decisions())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := sleeper(t, log)
	g := &testProcess{cmd: cmd, done: make(chan struct{})}
	go func() { cmd.Wait(); close(g.done) }()
	ticks := make(chan time.Time)
	over := make(chan struct{})
	go func() { boundLog(g, at.decisions(), &time.Ticker{C: ticks}); close(over) }()
	for range 2 { // the second is taken once the first was judged
		ticks <- time.Time{}
	}
	if err := unix.Kill(g.PID(), 0); err != nil {
		t.Error(err)
	}
	if err := log.Truncate(maxAttendantLog + 1); err != nil {
		t.Fatal(err)
	}
	select {
	case ticks <- time.Time{}:
	case <-over: // the second tick was judged only now
	}
	ended(t, g)
	<-over
}

// A guard that does not begin, or holds another policy, is no machine; nothing
// of either is left.
func TestAllowlist_NoMachineWithoutItsGuard(t *testing.T) {
	p := newProvider(t, "runc")
	for _, c := range []struct{ mode, want string }{{"missing", "start the egress guard"}, {"other", "holds another configuration"}} {
		r := allowing(guarded(p, c.mode), listed)
		id := provision(t, p, r)
		if _, err := p.Activate(t.Context(), id); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.mode, err)
		}
		if held, err := holders(p.place(id).decisions(), 0); err != nil || len(held) != 0 {
			t.Errorf("%s: %v, %v", c.mode, held, err)
		}
		if _, err := p.Activate(t.Context(), id); err == nil {
			t.Errorf("%s: a second try went through", c.mode)
		}
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("%s: left:\n%s", c.mode, strings.Join(left, "\n"))
		}
	}
}

// A machine without a network is what it always was.
func TestNone_HasNothingOfAnAllowlist(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, guarded(p, "missing")) // a guard would not begin
		s := sh(t, p, id, "ls /run/checkfu; env | grep -ci proxy; nc 127.0.0.1 3128 </dev/null 2>/dev/null || echo refused")
		if string(s.Stdout) != "init\n0\nrefused\n" {
			t.Errorf("%q", s.Stdout)
		}
		at := p.place(id)
		for _, path := range []string{at.egress(), at.decisions()} {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if bytes.Contains([]byte(readText(t, at.record())), []byte("guarded")) {
			t.Error("the record speaks of a guard")
		}
		if got, err := p.Decisions(t.Context(), id, 0); err != nil || fmt.Sprint(got) != fmt.Sprint(Decisions{}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// What cannot be had is refused by name and before anything is made.
func TestProvision_NetworksThatAreNotThere(t *testing.T) {
	with := newProvider(t, "runc")
	without := newProvider(t, "runc")
	guarded(with, "plain")
	for name, c := range map[string]struct {
		p      *Provider
		policy sandbox.NetworkPolicy
	}{
		"unrestricted":        {with, sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}},
		"a security boundary": {with, sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}, RequiredEgressCertification: sandbox.EgressSecurityBoundary}},
		"no guard":            {without, sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}}},
	} {
		r := request(c.p)
		r.Profile.NetworkPolicy = c.policy
		if _, err := c.p.Provision(t.Context(), r); !errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Operation: sandbox.OpProvision, Requirement: sandbox.RequireNetworkPolicy}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for p, want := range map[*Provider]string{with: "[none allowlist] advisory_filter", without: "[none] unsupported"} {
		c, err := p.Capabilities(t.Context())
		if got := fmt.Sprint(c.NetworkModes, " ", c.EgressCertification); err != nil || got != want || c.Validate() != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// Whatever killed its owner, and at whatever step: guard and relay are gone, at
// the latest with the sweep, also those that do not care about their owner.
func TestCleanup_AfterACrashNoAttendantIsLeft(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		guarded(p, "stubborn")
		for _, step := range []string{"record", "egress", "guarded", "relayed", "started", "running", "stopped", "reaped", "removed"} {
			crash(t, p, step, "CHILD_GUARD=stubborn")
			alive := false
			for _, c := range census(t, p) {
				alive = alive || strings.Contains(c, "process") && !strings.Contains(c, "init")
			}
			if want := step == "guarded" || step == "started" || step == "running"; want && !alive {
				t.Errorf("%s: no guard outlived the crash, so the sweep proves nothing", step)
			}
			if swept := sweep(t, p); step != "removed" && len(swept.InstanceIDs) != 1 {
				t.Errorf("%s: swept %v", step, swept.InstanceIDs)
			}
			if left := census(t, p); len(left) > 0 {
				t.Errorf("%s: left after the sweep:\n%s", step, strings.Join(left, "\n"))
			}
		}
	})
}

// The owner of an instance that expired is not taken for its guard, although it
// may have the log open while it starts one.
func TestEndHolders_SparesTheOwner(t *testing.T) {
	dir := t.TempDir()
	at := place{dir}
	if err := endHolders(t.Context(), at.decisions(), 0); err != nil {
		t.Error(err)
	}
	log, err := os.Create(at.decisions())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	owner, guard := sleeper(t, log), sleeper(t, log)
	if err := endHolders(t.Context(), at.decisions(), owner.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := guard.Wait(); err == nil || guard.ProcessState.String() != "signal: killed" {
		t.Errorf("guard: %v", guard.ProcessState)
	}
	if err := unix.Kill(owner.Process.Pid, 0); err != nil {
		t.Error(err)
	}
	owner.Process.Kill()
	owner.Wait()
}

// Only who can write a log is its attendant: one that reads it is not killed, and
// makes no guard look alive that is gone.
func TestEndHolders_SparesReaders(t *testing.T) {
	at := place{t.TempDir()}
	begin := func(flags int) *exec.Cmd {
		log, err := os.OpenFile(at.decisions(), flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		return sleeper(t, log)
	}
	for name, flags := range map[string]int{"write": os.O_WRONLY, "both": os.O_RDWR | os.O_APPEND} {
		writer := begin(flags | os.O_CREATE)
		reader, named := begin(os.O_RDONLY), begin(unix.O_PATH)
		if !isOpen(at.decisions()) {
			t.Errorf("%s: the writer is not seen", name)
		}
		if err := endHolders(t.Context(), at.decisions(), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := writer.Wait(); err == nil || writer.ProcessState.String() != "signal: killed" {
			t.Errorf("%s: writer: %v", name, writer.ProcessState)
		}
		if isOpen(at.decisions()) {
			t.Errorf("%s: a reader makes the log look written", name)
		}
		for _, cmd := range []*exec.Cmd{reader, named} {
			if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if cmd.Wait(); cmd.ProcessState.String() != "signal: terminated" {
				t.Errorf("%s: reader: %v", name, cmd.ProcessState)
			}
		}
	}
}

// What the guard is told: the list as it is, grouped by host and mode.
func TestCompile(t *testing.T) {
	p := &Provider{opt: Options{Egress: testGuard("", "plain")}}
	r := sandbox.ProvisionRequest{ExpiresAt: "2030-01-02T03:04:05.678Z"}
	r.Profile.NetworkPolicy = sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{
		{Host: "a.test", Port: 443}, {Host: "b.test", Port: 5432}, {Host: "a.test", Port: 8443, Mode: "tls"}, {Host: "a.test", Port: 80},
	}}
	text, err := p.compile("0123456789abcdef0123456789abcdef", r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := guard.ParseConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.Allow), "[{a.test [443 8443] tls} {b.test [5432] opaque} {a.test [80] opaque}]"; got != want {
		t.Errorf("allow %s, want %s", got, want)
	}
	if c.Resolver != "127.0.0.53:53" || c.ECH != "deny" || c.ExpiresAt != r.ExpiresAt || len(c.PolicyRevision) != 71 {
		t.Errorf("%+v", c)
	}
	r.Profile.NetworkPolicy.Destinations = []sandbox.Destination{}
	if text, err = p.compile("0123456789abcdef0123456789abcdef", r); err != nil || !bytes.Contains(text, []byte(`"allow":[]`)) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestHostResolver(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"nameserver 127.0.0.53\noptions edns0\n", "127.0.0.53:53"},
		{"# nameserver 1.1.1.1\nsearch a b\n\tnameserver\t9.9.9.9 # x\nnameserver 8.8.8.8\n", "9.9.9.9:53"},
		{"nameserver fe80::1%eth0\n", "[fe80::1%eth0]:53"},
		{"nameserver ::1", "[::1]:53"},
		{"nameserver dns.test\nnameserver 10.0.0.1\n", "10.0.0.1:53"},
		{"nameserver\n", ""},
		{"", ""},
	} {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := hostResolver(path)
		if c.want == "" && err == nil || c.want != "" && (err != nil || got.String() != c.want) {
			t.Errorf("%q: %s, %v", c.text, got, err)
		}
	}
	if _, err := hostResolver(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file has a name server")
	}
}

// A socket address holds 107 bytes, and a state directory may be deeper.
func TestListenAt_AnyDepth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second replaces the first
		l, err := listenAt(dir, guardSocket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	if info, err := os.Lstat(filepath.Join(dir, guardSocket)); err != nil || info.Mode() != os.ModeSocket|0o666 {
		t.Errorf("%v %v", info, err)
	}
}

// The drivers take only what they can carry out.
func TestForwardIsWrittenAsInitReadsIt(t *testing.T) {
	if got := (machine.Forward{Port: 3128, Socket: "/a/b"}).String(); got != "3128=/a/b" {
		t.Error(got)
	}
}
