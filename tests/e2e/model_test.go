package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/controlplane/gateway"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// TestModel: an agent's own request, as the SDKs make it, streams from inside the
// sandbox through relay and gateway to a provider of models. It has a token of its
// run and no key: while it streams, the key is nowhere but in the gateway, by a
// search that finds it there, and finds the token in the sandbox.
func TestModel(t *testing.T) {
	m, l := serveModels(t), internet(t)
	if err := l.Guard.Set("ipv4/ip_forward", "1"); err != nil { // as unrestricted machines ask
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, provider string
		network        []string // the route needs none, and stands beside each
	}{
		{"runsc beside a guard", providers[0], []string{"--allow", "allowed.test:8443"}},
		{"runc alone", providers[1], nil},
		{"runc unrestricted", providers[1], []string{"--network", "unrestricted"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, record := m.requests(), filepath.Join(t.TempDir(), "record")
			args := []string{"run", "--image", "busybox", "--provider", c.provider, "--mount", agent(t) + ":/agent", "--model", m.name, "--json", record}
			args = append(args, c.network...)
			script := "/agent/agent anthropic hold && /agent/agent openai && /agent/agent as " + route.NewToken() + " && env | grep -c sk-canary"
			cmd := onLab(t, append(args, "--", "sh", "-c", script)...)
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
			bound := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
			defer bound.Stop()
			said := bufio.NewScanner(out)
			if !said.Scan() || said.Text() != "begun" {
				t.Errorf("%q", said.Text())
			}
			// The upstream has not ended its answer: what arrived was streamed.
			searched(t, m, cmd.Process.Pid, strings.HasSuffix(c.name, "a guard"))
			m.goOn <- struct{}{}
			_, _ = io.WriteString(in, "go on\n")
			in.Close()
			want := []string{"message streamed 11 7", "completion streamed", "status 401", "0"}
			for _, w := range want {
				if !said.Scan() || said.Text() != w {
					t.Errorf("%q, want %q", said.Text(), w)
				}
			}
			_ = cmd.Wait() // grep counts nothing, and says so with 1
			if n := m.requests() - before; n != 2 {
				t.Errorf("%d requests at the provider of models, %d with another key", n, m.wrong)
			}
			if !strings.Contains(errs.String(), "models    2 requests, 16 tokens in (0 cached), 9 out\n") {
				t.Errorf("%s", errs.String())
			}
			text, err := os.ReadFile(record)
			if err != nil || !strings.Contains(string(text), `"model":{"cached_tokens":0,"down_bytes":`) || !strings.Contains(string(text), `"input_tokens":16,"output_tokens":9,"requests":2,`) {
				t.Errorf("%s, %v", text, err)
			}
			if strings.Contains(string(text)+errs.String(), m.key) {
				t.Error("the record or the summary holds the key")
			}
			s, err := m.operator.Status(t.Context())
			for _, l := range s.Leases {
				if l.Live {
					t.Errorf("a lease outlived its run: %+v", l)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestModel_StaleLeases: a session's token is good while its lease is, and for its
// own machine. A newer epoch, another run's token and an ended lease are 401, and
// nothing of them comes to the provider of models.
func TestModel_StaleLeases(t *testing.T) {
	m := serveModels(t)
	for range cap(m.goOn) {
		m.goOn <- struct{}{}
	}
	provider := providers[1]
	start := func() string {
		return session(t, provider, "--model", m.name)
	}
	one := start()
	first := m.live(t)
	two := start()
	token := func(id string) string { return strings.TrimSpace(inside(t, id, "echo $ANTHROPIC_API_KEY")) }
	ask := func(id, token string) string {
		return inside(t, id, askModel(token))
	}
	tokens := map[string]string{one: token(one), two: token(two)}
	if tokens[one] == tokens[two] {
		t.Error("two runs have one token")
	}
	for _, id := range []string{one, two} {
		if got := ask(id, tokens[id]); got != "streamed\n" {
			t.Errorf("%s: %q", id, got)
		}
	}
	asked := m.requests()
	if got := ask(one, tokens[two]); got != "401 Unauthorized\n" {
		t.Errorf("another run's token: %q", got)
	}
	// The same lease, taken over: the one who had it has nothing any more.
	granted, err := m.operator.Lease(t.Context(), gateway.Asked{
		RunID: first.RunID, LeaseID: first.LeaseID, LeaseEpoch: first.LeaseEpoch + 1, ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]string{"a stale epoch": tokens[one], "a token that its relay does not know": granted.Token} {
		if got := ask(one, token); got != "401 Unauthorized\n" {
			t.Errorf("%s: %q", what, got)
		}
	}
	second := m.live(t, first.RunID)
	if _, err := m.operator.End(t.Context(), gateway.Ending{LeaseID: second.LeaseID, LeaseEpoch: second.LeaseEpoch}); err != nil {
		t.Fatal(err)
	}
	if got := ask(two, tokens[two]); got != "401 Unauthorized\n" {
		t.Errorf("an ended lease: %q", got)
	}
	if n := m.requests(); n != asked {
		t.Errorf("%d requests came to the provider of models, want %d", n, asked)
	}
	r := run(t, "session", "exec", one, "--env", "OPENAI_API_KEY=sk-mine", "--", "true")
	if r.code != 2 || !strings.Contains(r.stderr, "expected no OPENAI_API_KEY beside a model route") || strings.Contains(r.stderr, "sk-mine") {
		t.Errorf("%+v", r)
	}
	// A session ends its own lease, and not the one of who has taken it over.
	for _, id := range []string{one, two} {
		mustRun(t, "session", "rm", id)
	}
	if l := m.live(t); l.LeaseID != first.LeaseID || l.LeaseEpoch != first.LeaseEpoch+1 {
		t.Errorf("%+v", l)
	}
}

// TestModel_TheGatewayIsKilled: while it is gone there are no models; the next one
// of its name has its leases, whose tokens are good as before, and its counts.
func TestModel_TheGatewayIsKilled(t *testing.T) {
	m := serveModels(t)
	for range cap(m.goOn) {
		m.goOn <- struct{}{}
	}
	id := session(t, providers[1], "--model", m.name)
	ask := func(want string) {
		t.Helper()
		if got := inside(t, id, askModel("$ANTHROPIC_API_KEY")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	ask("streamed\n")
	// The machine has its answer before the gateway has counted it.
	eventually(t, "the request is counted", func() bool { return m.live(t).Used.Requests == 1 })
	before := m.live(t)
	if err := m.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = m.process.Wait()
	ask("502 Bad Gateway\n")
	m.serve(t)
	if after := m.live(t); after != before {
		t.Errorf("%+v, before %+v", after, before)
	}
	ask("streamed\n")
	// Also where the keeper was killed, which then ended no lease.
	if err := syscall.Kill(sessions(t)[id].KeeperPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := mustRun(t, "session", "rm", id, "--json")
	if !strings.Contains(r.stdout, `"output_tokens":14,"requests":2,`) || !strings.Contains(r.stderr, "models    2 requests, 22 tokens in (0 cached), 14 out\n") {
		t.Errorf("%+v", r)
	}
	s, err := m.operator.Status(t.Context())
	if err != nil || len(s.Leases) != 1 || s.Leases[0].Live || s.Leases[0].Used.Requests != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestModel_TheRelayIsKilled: a run says that its models were gone before it was.
func TestModel_TheRelayIsKilled(t *testing.T) {
	m := serveModels(t)
	cmd := command(t, append([]string{"run", "--image", "busybox", "--provider", providers[1], "--model", m.name}, "--", "sh", "-c", "echo begun; read go; "+askModel("$ANTHROPIC_API_KEY"))...)
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || line != "begun\n" {
		t.Errorf("%q, %v", line, err)
	}
	pid := attendant(t, cmd.Process.Pid, "checkfu-relay")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	eventually(t, "its parent knows", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return err != nil
	})
	_, _ = io.WriteString(in, "go\n")
	in.Close()
	if rest, err := io.ReadAll(said); err != nil || strings.Contains(string(rest), "streamed") {
		t.Errorf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(errs.String(), "models    0 requests, 0 tokens in (0 cached), 0 out; none since the relay ended\n") {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// TestModel_TheRunIsKilled: its lease ends with it, and not at its time.
func TestModel_TheRunIsKilled(t *testing.T) {
	m := serveModels(t)
	cmd := command(t, "run", "--image", "busybox", "--provider", providers[1], "--model", m.name, "--", "sh", "-c", "echo begun; sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "begun\n" {
		t.Errorf("%q, %v", line, err)
	}
	m.live(t)
	kill(cmd, syscall.SIGKILL)
	_ = cmd.Wait()
	eventually(t, "its lease is over", func() bool {
		s, err := m.operator.Status(t.Context())
		return err == nil && len(s.Leases) == 1 && !s.Leases[0].Live
	})
	mustRun(t, "sweep")
}

// TestModel_EachAttendantDiesAlone: with the relay killed egress goes on and models
// are dead; with the guard killed it is the other way round.
func TestModel_EachAttendantDiesAlone(t *testing.T) {
	m, l := serveModels(t), internet(t)
	for _, provider := range providers {
		for _, dead := range []string{"checkfu-relay", "checkfu-guard"} {
			t.Run(strings.ReplaceAll(provider, ":", "-")+"/"+dead, func(t *testing.T) {
				for len(m.goOn) < cap(m.goOn) {
					m.goOn <- struct{}{}
				}
				r := on(t, l, "session", "start", "--image", "busybox", "--provider", provider, "--memory", "256MiB", "--disk", "64MiB", "--quiet",
					"--model", m.name, "--allow", "allowed.test:8443")
				id := strings.TrimSpace(r.stdout)
				if r.code != 0 {
					t.Fatalf("%+v", r)
				}
				defer run(t, "session", "rm", id)
				reach := func() string {
					return mustRun(t, "session", "exec", id, "--", "sh", "-c", through("allowed.test:8443")+askModel("$ANTHROPIC_API_KEY")).stdout
				}
				if got := reach(); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.HasSuffix(got, "streamed\n") {
					t.Fatalf("%q", got)
				}
				pid := attendant(t, sessions(t)[id].KeeperPID, dead)
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				eventually(t, "its keeper knows", func() bool {
					_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
					return err != nil
				})
				got := reach()
				if guard := strings.HasPrefix(got, "HTTP/1.1 200"); guard != (dead == "checkfu-relay") {
					t.Errorf("egress: %q", got)
				}
				if model := strings.HasSuffix(got, "streamed\n"); model != (dead == "checkfu-guard") {
					t.Errorf("models: %q", got)
				}
			})
		}
	}
}
