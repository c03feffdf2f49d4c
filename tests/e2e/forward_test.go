package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serving runs a command in a session that serves until it is killed.
func serving(t *testing.T, id, script string) {
	t.Helper()
	cmd := command(t, "session", "exec", id, "--", "sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "begun\n" || err != nil {
		t.Fatal(line, err)
	}
}

// forwarding runs the product and gives the addresses that it took.
func forwarding(t *testing.T, id string, ports ...string) (cmd *exec.Cmd, log *bytes.Buffer, at []string) {
	t.Helper()
	cmd, log = command(t, append([]string{"forward", id}, ports...)...), &bytes.Buffer{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for range ports {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "READY 127.0.0.1:") {
			cmd.Wait()
			t.Fatalf("%q, %s", lines.Text(), log)
		}
		at = append(at, strings.TrimPrefix(lines.Text(), "READY "))
	}
	return cmd, log, at
}

func dialed(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.TCPConn)
}

func get(at string) (string, error) {
	r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 90 * time.Second}).Get("http://" + at + "/")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// answered is get, which is done again where the connection was reset, or lasted
// too long: on a loaded host so many at once may be more than a machine starts in
// time. Half an answer is neither.
func answered(at string) (body string, err error) {
	for until := time.Now().Add(3 * time.Minute); time.Now().Before(until); {
		body, err = get(at)
		late, is := errors.AsType[net.Error](err)
		if !errors.Is(err, syscall.ECONNRESET) && !(is && late.Timeout()) {
			break
		}
	}
	return body, err
}

// A server in a machine without a network answers here, beside the command that
// it belongs to; nothing in there reaches this host by it.
func TestForward(t *testing.T) {
	mine, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	for i, provider := range providers {
		id := session(t, provider, "--id", name(t, provider, 50+i))
		machines = append(machines, sessions(t)[id].InstanceID)
		serving(t, id, `mkdir /tmp/w && echo hello >/tmp/w/index.html && httpd -p 127.0.0.1:8080 -h /tmp/w &&
			nc -ll -p 7777 -e sh -c 'read a; case $a in ps) ps;; out) nc -w 2 127.0.0.1 `+strings.TrimPrefix(mine.Addr().String(), "127.0.0.1:")+` </dev/null 2>&1; echo $?;; *) wc -c;; esac' &
			echo begun; wait`)
		cmd, log, at := forwarding(t, id, "8080:0", "7777:0", "9:0")

		for _, address := range at[:2] { // listening in there has no event out here
			eventually(t, "it listens", func() bool {
				c := dialed(t, address)
				defer c.Close()
				c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
				c.CloseWrite()
				answer, err := io.ReadAll(c)
				return err == nil && len(answer) > 0
			})
		}

		many := 100
		if provider != "native:runc" {
			many = 33 // more than there is room for at a time
		}
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if body, err := answered(at[0]); body != "hello\n" || err != nil {
					t.Errorf("%s: %q, %v", provider, body, err)
				}
			})
		}
		all.Wait()

		// Who says that he is done still hears the answer.
		c := dialed(t, at[1])
		io.WriteString(c, "count\n"+strings.Repeat("x", 300000))
		c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "300000\n" || err != nil {
			t.Errorf("%s: %q, %v", provider, got, err)
		}
		// Where nobody listens there is no empty answer either.
		if n, err := dialed(t, at[2]).Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %d, %v", provider, n, err)
		}
		// It is this host's loopback, and that of 127.0.0.1 alone.
		_, port, _ := net.SplitHostPort(at[0])
		if l, err := net.Listen("tcp", "127.0.0.2:"+port); err != nil {
			t.Error(err)
		} else {
			l.Close()
		}
		// The machine's own loopback is no way to this host's.
		c = dialed(t, at[1])
		io.WriteString(c, "out\n")
		if got, err := io.ReadAll(c); !strings.HasSuffix(string(got), "1\n") || err != nil {
			t.Errorf("%s: %q, %v", provider, got, err)
		}
		c.Close() // whoever is not done keeps his connection
		// What was forwarded has left nothing but the one that asks.
		eventually(t, "nothing is left in the machine", func() bool {
			c := dialed(t, at[1])
			defer c.Close()
			io.WriteString(c, "ps\n")
			got, _ := io.ReadAll(c)
			return strings.Count(string(got), "init dial") == 1
		})

		idle := dialed(t, at[1])
		kill(cmd, syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v, %s", provider, err, log)
		}
		if n, err := idle.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
		for _, want := range []string{"port 8080: 127.0.0.1:", " B to the machine, ", "port 9: 127.0.0.1:", "nobody in the machine took it: connect: connection refused\n"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: not in the log: %q: %.2000s", provider, want, log)
			}
		}

		// With its session a forward ends.
		cmd, log, _ = forwarding(t, id, "8080:0")
		mustRun(t, "session", "rm", id)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 125 || log.String() != "checkfu: session "+id+" has no machine any more\n" {
			t.Errorf("%d, %s", code, log)
		}
		nothingLeft(t)
	}
}

func TestForward_Refused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	id := session(t, "native:runc", "--id", name(t, "native:runc", 55))
	machines = append(machines, sessions(t)[id].InstanceID)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"forward", id}, "expected one session, and the ports"},
		{[]string{"forward", id, "0"}, "PORT: expected PORT or PORT:LOCAL"},
		{[]string{"forward", id, "80:" + port}, "PORT: expected a local port that is free"},
		{[]string{"forward", "nobody", "80"}, "SESSION: expected a session"},
	} {
		if r := run(t, c.args...); r.code != 2 || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("%q: %d, %q, %s", c.args, r.code, r.stdout, r.stderr)
		}
	}
	mustRun(t, "session", "rm", id)
	nothingLeft(t)
}
