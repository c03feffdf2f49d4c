package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// session starts one and returns its id. It ends with the test.
func session(t *testing.T, provider string, flags ...string) string {
	t.Helper()
	args := append([]string{"session", "start", "--image", "busybox", "--provider", provider, "--memory", "256MiB", "--disk", "64MiB", "--quiet"}, flags...)
	r := mustRun(t, args...)
	id := strings.TrimSpace(r.stdout)
	if r.stderr != "" || strings.Count(r.stdout, "\n") != 1 {
		t.Fatalf("%q, %q", r.stdout, r.stderr)
	}
	t.Cleanup(func() { run(t, "session", "rm", id) })
	return id
}

// keeping is a session as "session ls --json" says it; nil where it is not there.
type keeping struct {
	SessionID  string `json:"session_id"`
	State      string `json:"state"`
	KeeperPID  int    `json:"keeper_pid"`
	InstanceID string `json:"instance_id"`
	SnapshotID string `json:"snapshot_id"`
	ExpiresAt  string `json:"expires_at"`
	DiskBytes  int64  `json:"disk_bytes"`
}

func sessions(t *testing.T) map[string]keeping {
	t.Helper()
	var doc struct{ Sessions []keeping }
	if err := json.Unmarshal([]byte(mustRun(t, "session", "ls", "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]keeping{}
	for _, s := range doc.Sessions {
		all[s.SessionID] = s
	}
	return all
}

func inside(t *testing.T, id, script string) string {
	t.Helper()
	r := mustRun(t, "session", "exec", id, "--", "sh", "-c", script)
	if r.stderr != "" {
		t.Errorf("%q: %s", script, r.stderr)
	}
	return r.stdout
}

// left names what there is of sessions, and of machines.
func left() []string {
	all := census()
	files, _ := filepath.Glob(filepath.Join(state, "sessions", "*"))
	all = append(all, files...)
	staging, _ := filepath.Glob(filepath.Join(state, "staging", "run_*"))
	all = append(all, staging...)
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe"))
		text, _ := os.ReadFile(file)
		if exe == binary && strings.HasPrefix(string(text), "checkfu\x00keeper\x00e2e-") {
			all = append(all, "keeper "+file)
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/checkfu-*/*/cgroup.procs", "/sys/fs/cgroup/checkfu-*/*/cgroup.procs"} {
		groups, _ := filepath.Glob(pattern)
		for _, g := range groups {
			for _, id := range machines {
				if strings.Contains(g, id) {
					all = append(all, "cgroup "+g)
				}
			}
		}
	}
	return all
}

// machines are the ids of the machines of these tests.
var machines []string

// name is an id that a census of processes can find.
func name(t *testing.T, provider string, n int) string {
	return fmt.Sprintf("e2e-%d-%s-%d", os.Getpid(), strings.ReplaceAll(provider, ":", "-"), n)
}

func nothingLeft(t *testing.T) {
	t.Helper()
	var last []string
	eventually(t, "nothing is left", func() bool { last = left(); return len(last) == 0 })
	if len(last) > 0 {
		t.Errorf("left:\n%s", strings.Join(last, "\n"))
	}
}

// The whole group of the starter is killed, as a closed terminal or a build that
// is cancelled does it.
func TestASessionOutlivesItsStarter(t *testing.T) {
	repo := repository(t, map[string]string{"a.txt": "from the repository\n"})
	for _, provider := range providers {
		id := name(t, provider, 0)
		cmd := exec.Command("/bin/sh", "-c", `"$@" && echo started && sleep 1000`, "sh", binary, "session", "start", repo,
			"--id", id, "--image", "busybox", "--provider", provider, "--memory", "256MiB", "--disk", "64MiB", "--quiet")
		cmd.Env = command(t).Env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { run(t, "session", "rm", id) })
		want := id + "\nstarted\n"
		said := make([]byte, len(want))
		if _, err := io.ReadFull(out, said); err != nil || string(said) != want {
			t.Fatalf("%q, %v", said, err)
		}
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()

		s := sessions(t)[id]
		machines = append(machines, s.InstanceID)
		if s.State != "active" || s.KeeperPID == 0 {
			t.Fatalf("%+v", s)
		}
		if got := inside(t, id, "pwd; cat a.txt; echo one > /tmp/n; echo changed > a.txt"); got != "/workspace/repo\nfrom the repository\n" {
			t.Errorf("%s: %q", provider, got)
		}
		if got := inside(t, id, "cat /tmp/n a.txt"); got != "one\nchanged\n" {
			t.Errorf("%s: %q", provider, got)
		}
		if data, _ := os.ReadFile(filepath.Join(repo, "a.txt")); string(data) != "from the repository\n" {
			t.Errorf("the working tree was touched: %q", data)
		}
		if r := mustRun(t, "ps"); !strings.Contains(r.stdout, s.InstanceID) || !strings.Contains(r.stdout, "pid "+strconv.Itoa(s.KeeperPID)) {
			t.Errorf("ps:\n%s", r.stdout)
		}
		mustRun(t, "sweep") // it is somebody's
		if r := run(t, "session", "start", "--id", id, "--image", "busybox", "--provider", provider); r.code != 2 || !strings.Contains(r.stderr, "--id: ") {
			t.Errorf("%d: %s", r.code, r.stderr)
		}
		if r := mustRun(t, "session", "rm", id); r.stdout != id+"\n" {
			t.Errorf("%q", r.stdout)
		}
		if now := left(); len(now) > 0 {
			t.Errorf("%s: left:\n%s", provider, strings.Join(now, "\n"))
		}
	}
}

func TestTheExitOfACommandInASession(t *testing.T) {
	for _, provider := range providers {
		id := session(t, provider, "--id", name(t, provider, 1))
		for script, want := range map[string]int{"exit 7": 7, "kill -9 $$": 137, "true": 0} {
			if r := run(t, "session", "exec", id, "--", "sh", "-c", script); r.code != want {
				t.Errorf("%s: %q: %d, %s", provider, script, r.code, r.stderr)
			}
		}
		if r := run(t, "session", "exec", id, "--", "no-such-program"); r.code != 127 {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		if r := run(t, "session", "exec", id, "--timeout", "200ms", "--", "sleep", "1000"); r.code != 124 {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		in := command(t, "session", "exec", id, "--", "sh", "-c", "wc -c; echo $SECRET")
		in.Stdin = strings.NewReader("12345")
		if r := finish(t, in); r.stdout != "5\n\n" {
			t.Errorf("%q, %s", r.stdout, r.stderr)
		}
		// Two at once: the second is told, the first goes on, and Ctrl-C is its own.
		first := command(t, "session", "exec", id, "--", "sh", "-c", "trap 'exit 9' INT; echo begun; sleep 1000 & wait")
		out, err := first.StdoutPipe()
		if err == nil {
			err = first.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if r := run(t, "session", "exec", id, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "another command runs in it") {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		kill(first, syscall.SIGINT)
		_ = first.Wait()
		if code := first.ProcessState.ExitCode(); code != 130 {
			t.Errorf("%s: interrupted: %d", provider, code)
		}
		if got := inside(t, id, "echo next"); got != "next\n" {
			t.Errorf("%q", got)
		}
	}
}

func TestASessionExpires(t *testing.T) {
	for _, provider := range providers {
		id := session(t, provider, "--id", name(t, provider, 2), "--expires", "2500ms")
		machines = append(machines, sessions(t)[id].InstanceID)
		began := time.Now()
		// Whoever is inside then is put out.
		r := run(t, "session", "exec", id, "--", "sleep", "1000")
		if r.code != 125 && r.code != 137 || time.Since(began) > 25*time.Second {
			t.Errorf("%s: %d after %v, %s", provider, r.code, time.Since(began), r.stderr)
		}
		nothingLeft(t)
		if r := run(t, "session", "exec", id, "--", "true"); r.code != 2 {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
	}
}

func TestADeadKeeperIsSaidToBeDeadAndRemoved(t *testing.T) {
	for i, provider := range append(providers, providers...) {
		id := session(t, provider, "--id", name(t, provider, 10+i))
		s := sessions(t)[id]
		machines = append(machines, s.InstanceID)
		within := command(t, "session", "exec", id, "--", "sh", "-c", "echo begun; sleep 1000")
		out, err := within.StdoutPipe()
		if err == nil {
			err = within.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(s.KeeperPID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_ = within.Wait() // a command that nobody keeps any more is not waited for
		if code := within.ProcessState.ExitCode(); code != 125 || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %d after %v", provider, code, time.Since(began))
		}
		eventually(t, "ls says lost", func() bool { return sessions(t)[id].State == "lost" })
		if r := run(t, "session", "exec", id, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "session rm "+id) {
			t.Errorf("%d, %s", r.code, r.stderr)
		}
		if i < len(providers) {
			mustRun(t, "session", "rm", id)
		} else if r := mustRun(t, "sweep"); !strings.Contains(r.stdout, "removed session "+id) {
			t.Errorf("%q", r.stdout)
		}
		nothingLeft(t)
	}
}

func TestAStarterThatIsKilledLeavesNothing(t *testing.T) {
	repo := repository(t, map[string]string{"a.txt": strings.Repeat("x", 1<<20)})
	for i, provider := range providers {
		for j, after := range []time.Duration{0, 15, 30, 60, 100, 150} {
			cmd := command(t, "session", "start", repo, "--image", "busybox", "--provider", provider, "--id", name(t, provider, 100+10*i+j), "--quiet")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after * time.Millisecond) // not a wait: a moment to die at
			cmd.Process.Kill()
			cmd.Wait()
		}
		eventually(t, "no session is on its way", func() bool {
			for id, s := range sessions(t) {
				if s.State == "active" { // the kill came too late
					mustRun(t, "session", "rm", id)
				}
			}
			return len(sessions(t)) == 0
		})
		mustRun(t, "sweep")
		nothingLeft(t)
	}
}

func TestTwentySessionsAtOnce(t *testing.T) {
	command(t) // the image
	var wg sync.WaitGroup
	ids := make([]string, 20)
	for i := range ids {
		provider := providers[i%len(providers)]
		ids[i] = name(t, provider, 200+i)
		start := command(t, "session", "start", "--image", "busybox", "--provider", provider, "--memory", "128MiB", "--disk", "16MiB", "--id", ids[i], "--quiet")
		use := command(t, "session", "exec", ids[i], "--", "sh", "-c", "echo "+ids[i]+" > /tmp/me; cat /tmp/me")
		wg.Go(func() {
			if out, err := start.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
				return
			}
			if out, err := use.CombinedOutput(); err != nil || string(out) != ids[i]+"\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	if n := len(sessions(t)); n != 20 {
		t.Errorf("%d sessions", n)
	}
	for _, id := range ids {
		rm := command(t, "session", "rm", id)
		wg.Go(func() {
			if out, err := rm.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	nothingLeft(t)
}

// The keeper dies at some moment of its beginning: its starter says so, and a
// sweep finds all of it.
func TestAKeeperThatDiesWhileItBeginsIsSwept(t *testing.T) {
	for i, provider := range providers {
		for j, after := range []time.Duration{0, 5, 10, 20, 40, 60} {
			id := name(t, provider, 300+10*i+j)
			cmd := command(t, "session", "start", "--image", "busybox", "--provider", provider, "--id", id, "--quiet")
			done := make(chan result)
			go func() { done <- finish(t, cmd) }()
			record := filepath.Join(state, "sessions", id, "record.json")
			var s keeping
			var r result
			ended := false
			eventually(t, "the session is on disk", func() bool {
				select {
				case r = <-done:
					ended = true
				default:
				}
				var doc struct {
					PID int `json:"pid"`
				}
				text, err := os.ReadFile(record)
				if err == nil && json.Unmarshal(text, &doc) == nil {
					s.KeeperPID = doc.PID
				}
				return ended || s.KeeperPID != 0
			})
			time.Sleep(after * time.Millisecond) // not a wait: a moment to die at
			if s.KeeperPID != 0 {
				_ = syscall.Kill(s.KeeperPID, syscall.SIGKILL)
			}
			if !ended {
				r = <-done
			}
			if r.code != 0 && r.code != 125 { // 0: it had begun
				t.Errorf("%s after %v: %d, %s", provider, after*time.Millisecond, r.code, r.stderr)
			}
			eventually(t, "a sweep removes it", func() bool { mustRun(t, "sweep"); return len(left()) == 0 })
		}
	}
}
