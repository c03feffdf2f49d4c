package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// warmed is a provider beside p, over the same state, whose machines are started
// ahead as soon as nothing is under way. The end of the test closes it.
func warmed(t testing.TB, p *Provider, warm Warm, change ...func(*Options)) *Provider {
	t.Helper()
	opt := p.opt
	warm.Quiet = time.Nanosecond
	if warm.Failed == nil {
		warm.Failed = func(err error) { t.Error(err) }
	}
	opt.Warm = warm
	for _, c := range change {
		c(&opt)
	}
	w, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func waitFor(t testing.TB, p *Provider, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d machines wait", n), func() bool { return p.Waiting() == n })
}

// ids of the machines that wait, as the disk knows them.
func waitingIDs(t testing.TB, p *Provider) (ids []sandbox.InstanceID) {
	t.Helper()
	list, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Waits {
			ids = append(ids, r.InstanceID)
			if r.SessionID != "" || r.RunID != "" || !r.Owned {
				t.Errorf("of a machine that waits: %+v", r)
			}
		}
	}
	return ids
}

// asked has a machine of a shape asked for once, so that others wait for the next.
func asked(t testing.TB, p *Provider, r sandbox.ProvisionRequest) {
	t.Helper()
	h, err := p.Provision(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Destroy(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
}

// view is a script that prints what a workload can find out about its machine, but for
// what is another in each: clocks (no time of any file), and how much is free.
const view = `id; hostname; pwd; env | sort; umask; ulimit -a
for d in / /tmp /home /home/* /mnt /mnt/session /mnt/session/* /run /run/checkfu /workspace /workspace/repo /data /data/in /etc /dev; do stat -c '%A %u %g %t:%T %N' "$d" "$d"/* "$d"/.[!.]*; done 2>/dev/null
cat /proc/mounts | sort; cat /etc/passwd; ls /sys/class/net 2>&1; cat /proc/net/dev | cut -d: -f1
grep -E '^(Cap|NoNew|Seccomp:|Uid|Gid|Groups)' /proc/self/status
for p in /proc/[0-9]*; do read -r c <$p/comm && all="$all $c"; done; echo $all`

// A machine that waited is what a cold one is: the same to its workload, with the
// request's files, sealed where they are to be, and nothing of those before it.
func TestWarm_IsWhatAColdOneIs(t *testing.T) {
	drivers(t, func(t *testing.T, cold *Provider) {
		p := warmed(t, cold, Warm{Each: 1})
		staged := func(r sandbox.ProvisionRequest, mark string) sandbox.InstanceID {
			t.Helper()
			id := provision(t, p, r)
			for _, path := range []string{"/workspace/repo/f", "/data/in/f"} {
				if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: path, Content: []byte(mark)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.Activate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := staged(request(p, work, data), "planted-by-the-first")
		look := func(id sandbox.InstanceID) string {
			return strings.ReplaceAll(string(sh(t, p, id, view).Stdout), string(id), "ID") // in the name of a mount
		}
		seen := look(first)
		mustExit(t, sh(t, p, first, `for d in /tmp "$HOME" /mnt/session/outputs /workspace/repo; do echo planted-by-the-first >$d/trace; mkdir $d/planted-by-the-first; done`), 0)

		waitFor(t, p, 1) // while the first still runs
		next := waitingIDs(t, p)
		if err := p.Destroy(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		r := request(p, work, data)
		r.WorkspaceID, r.SessionID, r.RunID, r.Profile.ProfileID, r.ExpiresAt = "ws2", "ses2", "run2", "profile2", later(5*time.Minute)
		second := staged(r, "of-the-second")
		if !slices.Equal(next, []sandbox.InstanceID{second}) {
			t.Fatalf("%v waited, and %s was given", next, second)
		}
		rec, err := readRecord(p.place(second))
		if err != nil || rec.Waits || rec.SessionID != "ses2" || rec.RunID != "run2" || rec.ExpiresAt != r.ExpiresAt {
			t.Errorf("record %+v, %v", rec, err)
		}
		h, err := p.find(sandbox.OpExecute, second)
		if want := sandbox.InstanceOf(r, second, sandbox.StateActive, profileDigest(r.Profile)); err != nil || fmt.Sprint(h.describe()) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v, %v", h.describe(), want, err)
		}
		if got := look(second); got != seen {
			t.Errorf("a machine that waited is another to its workload:\n%s", difference(seen, got))
		} else if len(got) < 1000 {
			t.Errorf("it saw next to nothing: %s", got)
		}
		for _, c := range []struct{ script, want string }{
			{"cat /workspace/repo/f /data/in/f", "of-the-secondof-the-second"},
			{"echo x 2>/dev/null >/data/in/g || echo sealed", "sealed\n"},
			{"echo changed >/workspace/repo/f; cat /workspace/repo/f", "changed\n"},
			{"ls -A /tmp $HOME /mnt/session/outputs | grep -v :; ls /workspace/repo /data/in", "\n\n/data/in:\nf\n\n/workspace/repo:\nf\n"},
			{"grep -rl planted-by-the-first /tmp /home /mnt /workspace /data /run /etc /var 2>/dev/null", ""},
			{"find / -xdev -name 'planted*' -o -name trace 2>/dev/null", ""},
		} {
			if s := sh(t, p, second, c.script); string(s.Stdout) != c.want {
				t.Errorf("%s:\ngot  %q\nwant %q", c.script, s.Stdout, c.want)
			}
		}
		if got, err := p.ReadFile(t.Context(), second, sandbox.FileRead{Path: "/workspace/repo/f", AllowedRoot: work.MountPath, MaximumBytes: 100}); err != nil || string(got) != "changed\n" {
			t.Errorf("%q, %v", got, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := p.Release(t.Context(), second, sandbox.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
	})
}

// difference names the lines that only one of two texts has.
func difference(a, b string) string {
	var out []string
	one, other := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, l := range one {
		if !slices.Contains(other, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range other {
		if !slices.Contains(one, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// Ten at once are given ten machines, each once, and whoever comes eleventh a cold one.
func TestWarm_EachIsClaimedOnce(t *testing.T) {
	const n = 10
	p := warmed(t, newProvider(t, "runc"), Warm{Each: n, Machines: n})
	asked(t, p, request(p))
	waitFor(t, p, n)
	ready := waitingIDs(t, p)
	defer p.pool.work()() // no others meanwhile
	var mu sync.Mutex
	var group sync.WaitGroup
	var got []sandbox.InstanceID
	for range n + 1 {
		group.Go(func() {
			h, err := p.Provision(t.Context(), request(p))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err = p.Activate(t.Context(), h.Value.InstanceID); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, h.Value.InstanceID)
		})
	}
	group.Wait()
	cold := slices.DeleteFunc(slices.Clone(got), func(id sandbox.InstanceID) bool { return slices.Contains(ready, id) })
	slices.Sort(got)
	if len(slices.Compact(got)) != n+1 || len(cold) != 1 || p.Waiting() != 0 {
		t.Errorf("%d waited, %v were given, %v cold, %d wait", len(ready), got, cold, p.Waiting())
	}
	for _, id := range got {
		mustExit(t, sh(t, p, id, "true"), 0)
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// Machines wait for requests that differ in nothing that a machine is made of.
func TestShapeOf(t *testing.T) {
	p := &Provider{opt: Options{Driver: newDriver(t, "runc", t.TempDir())}}
	setup(t)
	base := request(p, work, data)
	base.WorkspaceID, base.SessionID, base.RunID, base.AttemptID, base.LeaseID = "planted", "planted", "planted", "planted", "planted"
	base.Profile.ProfileID = "planted"
	keyFor := func(r sandbox.ProvisionRequest) string {
		of, ok := shapeOf(r)
		key, encoded := keyOf(of)
		if !ok || !encoded {
			return ""
		}
		return key
	}
	want := keyFor(base)
	if strings.Contains(want, "planted") || want == "" {
		t.Errorf("a shape tells of a session: %s", want)
	}
	for name, test := range map[string]struct {
		change func(*sandbox.ProvisionRequest)
		want   string // same, other or none
	}{
		"identity": {func(r *sandbox.ProvisionRequest) {
			r.WorkspaceID, r.SessionID, r.RunID, r.AttemptID, r.LeaseID, r.LeaseEpoch = "a", "b", "c", "d", "e", 9
		}, "same"},
		"expiry":     {func(r *sandbox.ProvisionRequest) { r.ExpiresAt = later(time.Hour) }, "same"},
		"profile id": {func(r *sandbox.ProvisionRequest) { r.Profile.ProfileID, r.Profile.ProfileVersion = "other", 2 }, "same"},
		"duration":   {func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.MaxDurationSeconds++ }, "same"},
		"cpu":        {func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.CPUMillis++ }, "other"},
		"memory":     {func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.MemoryBytes++ }, "other"},
		"disk":       {func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.DiskBytes++ }, "other"},
		"processes":  {func(r *sandbox.ProvisionRequest) { r.Profile.ResourceLimits.MaxProcesses++ }, "other"},
		"image":      {func(r *sandbox.ProvisionRequest) { r.RootImage = "other@sha256:" + strings.Repeat("0", 64) }, "other"},
		"base image": {func(r *sandbox.ProvisionRequest) { r.Profile.BaseImage = "other@sha256:" + strings.Repeat("0", 64) }, "other"},
		"packages": {func(r *sandbox.ProvisionRequest) {
			r.Profile.Packages = []sandbox.Package{{Manager: "apt", Name: "git"}}
		}, "none"},
		"retention":    {func(r *sandbox.ProvisionRequest) { r.Profile.RetentionMode = sandbox.RetentionDurable }, "none"},
		"platform":     {func(r *sandbox.ProvisionRequest) { r.Platform.Architecture = "other" }, "other"},
		"revision":     {func(r *sandbox.ProvisionRequest) { r.Target.ProviderRevision = "other" }, "other"},
		"allowlist":    {func(r *sandbox.ProvisionRequest) { r.Profile.NetworkPolicy = allowing(p, listed).Profile.NetworkPolicy }, "other"},
		"unrestricted": {func(r *sandbox.ProvisionRequest) { r.Profile.NetworkPolicy.Mode = sandbox.NetworkUnrestricted }, "none"},
		"no mounts":    {func(r *sandbox.ProvisionRequest) { r.Mounts = nil }, "other"},
		"mount order":  {func(r *sandbox.ProvisionRequest) { r.Mounts = []sandbox.Mount{data, work} }, "other"},
		"mount access": {func(r *sandbox.ProvisionRequest) { r.Mounts[0].Access = sandbox.AccessReadOnly }, "other"},
		"nested mount": {func(r *sandbox.ProvisionRequest) {
			r.Mounts = append(r.Mounts, sandbox.Mount{MountPath: "/workspace/repo/in", Access: sandbox.AccessReadWrite})
		}, "none"},
		"mount in /tmp": {func(r *sandbox.ProvisionRequest) {
			r.Mounts = append(r.Mounts, sandbox.Mount{MountPath: "/tmp/in", Access: sandbox.AccessReadWrite})
		}, "none"},
	} {
		r := base
		r.Mounts = slices.Clone(base.Mounts)
		test.change(&r)
		got := map[bool]string{true: "same", false: "other"}[keyFor(r) == want]
		if keyFor(r) == "" {
			got = "none"
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	one, other := allowing(p, listed), allowing(p)
	if keyFor(one) != keyFor(other) || strings.Contains(keyFor(one), listed.Host) {
		t.Errorf("the list is the guard's, which comes with the claim: %s", keyFor(one))
	}
}

// What a machine can reach is what its own request says: neither the list nor the
// lease of the request for which its shape was learned.
func TestWarm_TheListAndTheLeaseAreTheRequestsOwn(t *testing.T) {
	drivers(t, func(t *testing.T, cold *Provider) {
		l := routed(t, guarded(cold, "plain"))
		p := warmed(t, cold, Warm{Each: 1})
		asked(t, p, allowing(p, sandbox.Destination{Host: "other.test", Port: 443}))
		waitFor(t, p, 1)
		ready := waitingIDs(t, p)
		if files, err := os.ReadDir(p.place(ready[0]).egress()); err != nil || len(files) > 0 {
			t.Errorf("before the claim there is %v, %v", files, err)
		}
		l.token = route.NewToken()
		id := activate(t, p, allowing(p, listed))
		if id != ready[0] {
			t.Fatalf("%v waited, and %s was given", ready, id)
		}
		for _, c := range []struct{ script, want string }{
			{ask("allowed.test:443"), "HTTP/1.1 200 OK\r\n\r\nthroughstatus 0\n"},
			{ask("other.test:443"), "HTTP/1.1 403 Forbidden\r\n\r\nstatus 0\n"},
			{askModel, "/v1/messages " + l.token + " status 0\n"},
			{"echo $(ls /run/checkfu/egress); touch /run/checkfu/egress/x 2>/dev/null || echo sealed", "guard.sock relay.sock\nsealed\n"},
		} {
			if s := sh(t, p, id, c.script); string(s.Stdout) != c.want {
				t.Errorf("%s:\ngot  %q\nwant %q\n%s", c.script, s.Stdout, c.want, s.Stderr)
			}
		}
		if err := errors.Join(p.Close(), p.Destroy(t.Context(), id)); err != nil {
			t.Error(err)
		}
		if n := l.ends.Load(); n != 2 {
			t.Errorf("%d leases ended, of two that were made", n)
		}
		if left := census(t, p); len(left) > 0 {
			t.Errorf("left:\n%s", strings.Join(left, "\n"))
		}
	})
}

// A machine that ended while it waited is given to nobody, nor one in whose home
// something lies; one that ended after its claim is started again.
func TestWarm_WhatIsUnfitIsGivenToNobody(t *testing.T) {
	drivers(t, func(t *testing.T, cold *Provider) {
		for name, spoil := range map[string]func(*Provider, *instance){
			"ended": func(_ *Provider, in *instance) { in.machine.Destroy(t.Context()) },
			"a file": func(_ *Provider, in *instance) {
				os.WriteFile(filepath.Join(in.at.home(), "tmp", "of-nobody"), nil, 0o600)
			},
		} {
			t.Run(name, func(t *testing.T) {
				p := warmed(t, cold, Warm{Each: 1})
				asked(t, p, request(p))
				waitFor(t, p, 1)
				done := p.pool.work() // it may be ended for what is wrong with it, and none started
				p.mu.Lock()
				in := p.pool.shapes[0].ready[0].in
				p.mu.Unlock()
				spoil(p, in)
				id := activate(t, p, request(p))
				if id == in.id {
					t.Errorf("%s was given", id)
				}
				mustExit(t, sh(t, p, id, "[ -z \"$(ls -A /tmp)\" ]"), 0)
				eventually(t, "it is gone", func() bool { there, err := p.place(in.id).real(); return !there && err == nil })
				done()
			})
		}
		t.Run("after its claim", func(t *testing.T) {
			p := warmed(t, cold, Warm{Each: 1})
			asked(t, p, request(p, work))
			waitFor(t, p, 1)
			ready := waitingIDs(t, p)
			id := provision(t, p, request(p, work))
			if id != ready[0] {
				t.Fatalf("%v waited, and %s was given", ready, id)
			}
			in, err := p.find(sandbox.OpActivate, id)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/workspace/repo/f", Content: []byte("staged")}); err != nil {
				t.Fatal(err)
			}
			in.machine.Destroy(t.Context())
			if _, err := p.Activate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			mustExit(t, sh(t, p, id, "[ $(cat /workspace/repo/f) = staged ]"), 0)
		})
	})
}

// Nothing is started ahead while somebody's provision or activation is under way.
func TestWarm_NobodysMachineIsStartedBesideSomebodys(t *testing.T) {
	p := warmed(t, newProvider(t, "runc"), Warm{Each: 1})
	done := p.pool.work()
	p.pool.learn(request(p))
	p.pool.nudge()
	if s, wait := p.pool.next(); s != nil || wait > lookEvery {
		t.Errorf("%v is to be started, else wait %v", s, wait)
	}
	done()
	waitFor(t, p, 1)
	if s, _ := p.pool.next(); s != nil {
		t.Error("more than are wanted")
	}
}
