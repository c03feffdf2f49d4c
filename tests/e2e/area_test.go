package e2e

import (
	"bufio"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNoTestAndNoCallerSweepsASession: the suite, and who calls a provider that is
// served, sweep without the pins of the sessions beside them. These are what they
// were, and what was swept for is gone.
func TestNoTestAndNoCallerSweepsASession(t *testing.T) {
	keepable(t)
	for i, provider := range providers {
		id := name(t, provider, 500+i)
		mustRun(t, "session", "start", "--id", id, "--image", "busybox", "--provider", provider, "--memory", "256MiB", "--disk", "64MiB", "--keep", "--quiet")
		t.Cleanup(func() { run(t, "session", "rm", id) })
		inside(t, id, "echo kept > ~/n")
		pause(t, id)
		fork := strings.TrimSpace(mustRun(t, "session", "fork", id, "--quiet").stdout)
		t.Cleanup(func() { run(t, "session", "rm", fork) })
		before := snapshots()

		target, ended := serve(t, provider)
		image := busyboxReference.FindString(mustRun(t, "image", "ls").stdout)
		for _, test := range [][]string{{"builtin:" + provider, "--image", "busybox"}, {target, "--image", image}} {
			args := append([]string{"sandbox", "test"}, test...)
			r := run(t, append(args, "--run", "execute.exit-codes", "--repeat", "1", "--suite", "contract")...)
			if r.code != 3 { // incomplete: one case of many
				t.Errorf("%q: %d\n%s%s", test, r.code, r.stdout, r.stderr)
			}
			if after := snapshots(); strings.Join(after, " ") != strings.Join(before, " ") {
				t.Fatalf("%q: snapshots were %q, are %q", test, before, after)
			}
			is(t, id, "paused")
			is(t, fork, "paused")
		}
		ended()
		resume(t, fork)
		is(t, fork, "active")
		if got := inside(t, fork, "cat ~/n"); got != "kept\n" {
			t.Errorf("%q", got)
		}
		remove(t, id, fork)
		nothingKept(t)
	}
}

// serve serves a provider until ended is called, which wants it to end well.
func serve(t *testing.T, provider string, more ...string) (target string, ended func()) {
	t.Helper()
	target = "unix:" + filepath.Join(t.TempDir(), "s")
	server := command(t, append([]string{"provider", "serve", "--provider", provider, "--listen", target}, more...)...)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also where the test failed
		if server.ProcessState == nil {
			_ = server.Process.Signal(syscall.SIGTERM)
			_ = server.Wait()
		}
	})
	late := time.AfterFunc(time.Minute, func() { _ = server.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	if err != nil || line != "READY "+target+"\n" {
		t.Fatalf("%q, %v", line, err)
	}
	go io.Copy(io.Discard, out)
	return target, func() {
		t.Helper()
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
}
