package memory

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

func TestExecute(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	c := shellCommand("")
	c.Executable, c.Arguments, c.Stdin = "cat", nil, bytes.Repeat([]byte{0, 0xff, '\r', '\n'}, sandbox.MaxFileBytes/4)
	c.OutputLimitBytes = sandbox.MaxOutputBytes
	s, err := f.p.Execute(f.ctx(), id, c)
	f.must(err)
	f.must(s.Validate(c.OutputLimitBytes))
	if !bytes.Equal(s.Stdout, c.Stdin) {
		t.Error("16 MiB did not come back")
	}
	// One byte less of a limit is an error, never a shorter output.
	c.OutputLimitBytes--
	_, err = f.p.Execute(f.ctx(), id, c)
	f.want(err, sandbox.OverLimit(sandbox.StreamStdout, c.OutputLimitBytes))
	c.OutputLimitBytes = 10
	c.Executable, c.Arguments = "sh", []string{"-c", "yes >&2"}
	_, err = f.p.Execute(f.ctx(), id, c)
	f.want(err, sandbox.OverLimit(sandbox.StreamStderr, 10))
	c.Arguments = []string{"-c", "printf 1234567890; printf 1234567890 >&2"}
	s, err = f.p.Execute(f.ctx(), id, c)
	f.must(err)
	if string(s.Stdout) != "1234567890" || string(s.Stderr) != "1234567890" {
		t.Errorf("%q %q", s.Stdout, s.Stderr)
	}
}

func TestExecuteArguments(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	c := shellCommand("")
	c.Executable, c.WorkingDirectory = "/usr/bin/printf", "/workspace/rw"
	c.Arguments = append([]string{"%s\n"}, strings.Split(strings.Repeat("a b;$HOME,", sandbox.MaxArguments-1), ",")[:sandbox.MaxArguments-1]...)
	s, err := f.p.Execute(f.ctx(), id, c)
	f.must(err)
	if string(s.Stdout) != strings.Repeat("a b;$HOME\n", sandbox.MaxArguments-1) {
		t.Errorf("%q", s.Stdout)
	}
	c.Executable, c.Arguments = "echo", []string{strings.Repeat("x", sandbox.MaxArgumentBytes)}
	if s, err = f.p.Execute(f.ctx(), id, c); err != nil || len(s.Stdout) != sandbox.MaxArgumentBytes+1 {
		t.Error(len(s.Stdout), err)
	}
}

func TestExecuteRefuses(t *testing.T) {
	startFailed := &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpExecute, Reason: sandbox.ReasonStartFailed}
	notFound := &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpExecute, Reason: sandbox.ReasonNotFound}
	bad := &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpExecute, Reason: sandbox.ReasonInvalidRequest}
	for _, c := range []struct {
		name   string
		change func(*sandbox.Command)
		want   *sandbox.Error
	}{
		{"no such program", func(c *sandbox.Command) { c.Executable = "nosuch" }, notFound},
		{"no such path", func(c *sandbox.Command) { c.Executable = "/nosuch/x" }, notFound},
		{"not a program", func(c *sandbox.Command) { c.Executable = "/tmp" }, startFailed},
		{"no such directory", func(c *sandbox.Command) { c.WorkingDirectory = "/nosuch" }, startFailed},
		{"not a directory", func(c *sandbox.Command) { c.WorkingDirectory = "/bin/cat" }, startFailed},
		{"timeout over the profile's", func(c *sandbox.Command) { c.TimeoutSeconds = 3601 }, &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireResources}},
		{"no timeout", func(c *sandbox.Command) { c.TimeoutSeconds = 0 }, bad},
		{"output limit", func(c *sandbox.Command) { c.OutputLimitBytes = sandbox.MaxOutputBytes + 1 }, bad},
		{"stdin", func(c *sandbox.Command) { c.Stdin = make([]byte, sandbox.MaxFileBytes+1) }, bad},
		{"arguments", func(c *sandbox.Command) { c.Arguments = make([]string, 257) }, bad},
		{"NUL", func(c *sandbox.Command) { c.Arguments = []string{"\x00"} }, bad},
		{"environment", func(c *sandbox.Command) { c.Environment = map[string]string{"1": ""} }, bad},
	} {
		f := newFixture(t)
		id := f.active(request())
		cmd := shellCommand("true")
		c.change(&cmd)
		_, err := f.p.Execute(f.ctx(), id, cmd)
		f.want(err, c.want)
	}
}

func TestExecuteTime(t *testing.T) {
	f := newFixture(t)
	id := f.active(request())
	s := f.run(id, "sleep 2; sleep 1.5")
	if s.StartedAt != at(0) || s.FinishedAt != at(3500*time.Millisecond+time.Millisecond) {
		t.Errorf("%s to %s", s.StartedAt, s.FinishedAt)
	}
	if now := f.p.now(); now != s.FinishedAt {
		t.Errorf("the clock stands at %s", now)
	}
	c := shellCommand("echo a; sleep 100")
	c.TimeoutSeconds = 1
	s, err := f.p.Execute(f.ctx(), id, c)
	f.must(err)
	started, _ := s.StartedAt.Time()
	if !s.TimedOut || string(s.Stdout) != "a\n" || s.FinishedAt != sandbox.At(started.Add(time.Second)) {
		t.Errorf("%+v", s)
	}
}

// A clock without more than Now serves as well; the interval still says how
// long the command slept.
func TestExecutePlainClock(t *testing.T) {
	p := New(Options{Clock: plainClock{}})
	h, err := p.Provision(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	s, err := p.Execute(t.Context(), h.Value.InstanceID, shellCommand("sleep 5"))
	if err != nil || s.StartedAt != at(0) || s.FinishedAt != at(5*time.Second) {
		t.Error(s, err)
	}
}

type plainClock struct{}

func (plainClock) Now() time.Time { return start }

func TestEgress(t *testing.T) {
	f := newFixture(t)
	list := sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{{Host: "api.example.com", Port: 443}, {Host: "db.example.com", Port: 5432}}}
	for _, c := range []struct {
		policy     sandbox.NetworkPolicy
		host, port string
		ok         bool
	}{
		{list, "api.example.com", "443", true},
		{list, "db.example.com", "5432", true},
		{list, "api.example.com", "80", false},
		{list, "api.example.com", "5432", false},
		{list, "example.com", "443", false},
		{list, "x.api.example.com", "443", false},
		{list, "api.example.com.", "443", false},
		{list, "API.example.com", "443", false},
		{list, "api.example.com", "0443", false},
		{list, "api.example.com", "https", false},
		{list, "api.example.com:443", "443", false},
		{list, "93.184.216.34", "443", false},
		{list, "127.0.0.1", "443", false},
		{sandbox.NetworkPolicy{Mode: sandbox.NetworkAllowlist, Destinations: []sandbox.Destination{}}, "api.example.com", "443", false},
		{sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, "api.example.com", "443", false},
		{sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}, "api.example.com", "443", true},
		{sandbox.NetworkPolicy{Mode: sandbox.NetworkUnrestricted}, "api.example.com", "0", false},
	} {
		id := f.active(with(func(r *sandbox.ProvisionRequest) { r.Profile.NetworkPolicy = c.policy }))
		for _, probe := range []string{"nc -z ", "connect "} {
			if s := f.run(id, probe+c.host+" "+c.port); (*s.Exit.ExitCode == 0) != c.ok {
				t.Errorf("%s: %s%s %s: %s", c.policy.Mode, probe, c.host, c.port, show(s))
			}
		}
	}
}

func TestPrograms(t *testing.T) {
	p := New(Options{Programs: map[string]Program{"agent": func(c *Call) int {
		if err := c.WriteFile("note", []byte(c.Args[0]+c.Env["X"])); err != nil {
			return 1
		}
		data, err := c.ReadFile("note")
		if err != nil || c.Connect("a.example", "1") || c.Sleep(time.Second) != nil {
			return 2
		}
		c.Stdout.Write(data)
		return 3
	}}})
	f := newFixture(t)
	f.p = p
	id := f.active(request())
	if s := f.run(id, "cd /tmp; X=y agent x; echo $?; cat note"); string(s.Stdout) != "xy3\nxy" {
		t.Errorf("%q %q", s.Stdout, s.Stderr)
	}
}

// The same calls in the same order give the same bytes.
func TestReplay(t *testing.T) {
	transcript := func() string {
		f := newFixture(t)
		out := ""
		id := f.provision(request())
		f.write(id, "/workspace/ro/a", "a")
		f.activate(id)
		for _, script := range []string{"cat /workspace/ro/a; ls /; env; echo $$", "yes | head -c 100000 | sha256sum", "seq 1 1000 | while read x; do echo $x; done | wc -l", "yes", "sleep 3 | sleep 2; exit 4", "yes | cat >/dev/null", "kill $$"} {
			c := shellCommand(script)
			c.TimeoutSeconds = 4
			s, err := f.p.Execute(f.ctx(), id, c)
			out += string(s.Stdout) + "|" + string(s.Stderr) + "|" + string(s.StartedAt) + "|" + string(s.FinishedAt)
			if err != nil {
				out += err.Error()
			} else {
				out += show(s)
			}
		}
		snapshot := f.snapshot(id, time.Hour)
		out += string(id) + string(snapshot.SnapshotID) + string(snapshot.CreatedAt) + string(f.resume(request(), snapshot))
		return out
	}
	first := transcript()
	for range 8 {
		if again := transcript(); again != first {
			t.Fatalf("%q\n%q", first, again)
		}
	}
	other := newFixture(t)
	other.p = New(Options{Seed: "other"})
	if id := other.provision(request()); strings.Contains(first, string(id)) {
		t.Error("two seeds give one id")
	}
}

// A destroyed instance and a cancelled caller both end a command at once.
func TestExecuteEnds(t *testing.T) {
	f := newFixture(t)
	entered := make(chan struct{})
	f.p = New(Options{Programs: map[string]Program{"hang": func(c *Call) int {
		entered <- struct{}{}
		<-c.Killed()
		return 0
	}}})
	id := f.active(request())
	run := func(ctx context.Context) chan error {
		result := make(chan error)
		go func() {
			_, err := f.p.Execute(ctx, id, shellCommand("hang; echo no"))
			result <- err
		}()
		<-entered
		return result
	}
	ctx, cancel := context.WithCancel(f.ctx())
	result := run(ctx)
	cancel()
	if err := <-result; err != context.Canceled {
		t.Error(err)
	}
	result = run(f.ctx())
	f.must(f.p.Destroy(f.ctx(), id))
	f.want(<-result, sandbox.Failed(sandbox.OpExecute, sandbox.ReasonInstanceLost, nil))
}

// A program that does not end delays a destroy, which is bounded by its
// context and can be repeated; a durable release gives the instance back.
func TestDestroyIsBounded(t *testing.T) {
	f := newFixture(t)
	entered, let := make(chan struct{}), make(chan struct{})
	f.p = New(Options{Programs: map[string]Program{"stuck": func(c *Call) int { entered <- struct{}{}; <-let; return 0 }}})
	id := f.active(request())
	f.write(id, sandbox.OutputPath+"/o", "kept")
	var done sync.WaitGroup
	done.Go(func() { f.p.Execute(f.ctx(), id, shellCommand("stuck")) })
	<-entered
	short, cancel := context.WithTimeout(f.ctx(), time.Millisecond)
	defer cancel()
	_, err := f.p.Release(short, id, sandbox.ReleaseRequest{ExpiresAt: at(time.Hour)})
	if err != context.DeadlineExceeded {
		t.Error(err)
	}
	if got := f.read(id, sandbox.OutputPath+"/o", sandbox.OutputPath); got != "kept" {
		t.Errorf("%q", got)
	}
	if err := f.p.discard(short, f.p.instances[id]); err != context.DeadlineExceeded {
		t.Error(err)
	}
	close(let)
	f.must(f.p.Destroy(f.ctx(), id))
	done.Wait()
}
