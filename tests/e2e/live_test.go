package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
)

// counted is how far the program is that counts in a session.
func counted(t *testing.T, id string, than int) int {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; {
		r := run(t, "session", "exec", id, "--", "cat", "/tmp/n")
		if n, _ := strconv.Atoi(strings.TrimSpace(r.stdout)); n > than {
			return n
		}
		if time.Now().After(late) {
			t.Fatalf("it does not count beyond %d: %+v", than, r)
		}
	}
}

// A session is paused in the middle of its work, and goes on as often as it is forked,
// each time for itself; what cannot be kept so is refused, and nothing is the worse.
func TestALiveSessionGoesOn(t *testing.T) {
	keepable(t)
	id := name(t, "native:runsc", 450)
	mustRun(t, "session", "start", "--id", id, "--image", "busybox", "--memory", "256MiB", "--disk", "64MiB", "--keep=48h", "--live", "--quiet")
	ids := []string{id}
	t.Cleanup(func() { run(t, append([]string{"session", "rm"}, ids...)...) })
	is(t, id, "active")
	started := mustRun(t, "session", "exec", id, "--detach", "--output", "log", "--", "sh", "-c",
		"echo begun; n=0; while :; do n=$((n+1)); echo $n >/tmp/n.new; mv /tmp/n.new /tmp/n; usleep 5000; done")
	if pid, err := strconv.Atoi(strings.TrimSpace(started.stdout)); err != nil || pid < 2 {
		t.Errorf("expected a process id, got %q", started.stdout)
	}
	before := counted(t, id, 10)

	// While somebody waits for a command it is refused, and both go on.
	waiting := command(t, "session", "exec", id, "--", "sh", "-c", "echo ready; read line; echo heard $line")
	in, err := waiting.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := waiting.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	if n, err := out.Read(said); err != nil || string(said[:n]) != "ready\n" {
		t.Fatalf("%q, %v", said[:n], err)
	}
	if r := run(t, "session", "pause", "--live", id); r.code == 0 || !strings.Contains(r.stderr, "a command runs in it") || !strings.Contains(r.stderr, "goes on") {
		t.Errorf("%+v", r)
	}
	if _, err := in.Write([]byte("it\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(said); err != nil || string(said[:n]) != "heard it\n" {
		t.Errorf("%q, %v", said[:n], err)
	}
	if err := waiting.Wait(); err != nil {
		t.Error(err)
	}
	before = counted(t, id, before)

	mustRun(t, "session", "pause", "--live", id)
	var doc struct {
		Sessions []struct {
			SessionID string `json:"session_id"`
			State     string `json:"state"`
			Live      bool   `json:"live"`
		} `json:"sessions"`
	}
	if err := json.Unmarshal([]byte(mustRun(t, "session", "ls", "--json").stdout), &doc); err != nil {
		t.Fatal(err)
	}
	for _, s := range doc.Sessions {
		if s.SessionID == id && (s.State != "paused" || !s.Live) {
			t.Errorf("%+v", s)
		}
	}
	ids = append(ids, strings.Fields(mustRun(t, "session", "fork", id, "--count", "2", "--quiet").stdout)...)
	resume(t, ids...)
	for i, one := range ids {
		is(t, one, "active")
		counted(t, one, before)
		if got := inside(t, one, "cat ~/log; echo "+strconv.Itoa(i)+" > ~/own; cat ~/own"); got != "begun\n"+strconv.Itoa(i)+"\n" {
			t.Errorf("%s: %q", one, got)
		}
	}
	// Paused without them, and once more with them, of which the files are taken alone.
	pause(t, ids[1])
	resume(t, ids[1])
	mustRun(t, "session", "pause", "--live", ids[2])
	mustRun(t, "session", "resume", "--cold", ids[2])
	for i, one := range ids[1:] {
		is(t, one, "active")
		if got := inside(t, one, "ls /tmp; cat ~/own"); got != strconv.Itoa(i+1)+"\n" {
			t.Errorf("%s: %q", one, got)
		}
	}
	remove(t, ids...)
	ids = nil
	nothingKept(t)
}

// What cannot be live is refused before anything is made of it.
func TestLive_WhatIsRefusedFromTheStart(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"session", "start", "--live", "--image", "busybox"}, "--live: expected --keep beside it"},
		{[]string{"session", "start", "--live", "--keep", "--provider", "native:runc", "--image", "busybox"}, "--live: expected --provider native:runsc"},
		{[]string{"session", "start", "--live", "--keep", "--network", "unrestricted", "--image", "busybox"}, "--live: expected no network"},
		{[]string{"session", "exec", "ses_0", "--output", "x", "--", "true"}, "--output: expected --detach beside it"},
	} {
		if r := run(t, c.args...); r.code != 2 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	id := session(t, "native:runsc")
	for _, args := range [][]string{{"session", "exec", id, "--detach", "--", "true"}, {"session", "pause", "--live", id}} {
		if r := run(t, args...); r.code != 2 || !strings.Contains(r.stderr, "started with --") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
