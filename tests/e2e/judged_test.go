package e2e

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/lab"
)

var busyboxReference = regexp.MustCompile(`\S*busybox\S*@sha256:[0-9a-f]{64}`)

// TestJudgeServed: the allowlist case of a provider behind a wire is judged once
// its author names two destinations that answer; without them it is an error that
// says so.
func TestJudgeServed(t *testing.T) {
	l := internet(t)
	for _, name := range []string{"listed.names.test", "unlisted.names.test"} {
		l.Resolver.Script(name, lab.Addresses(lab.PublicAddr))
	}
	if err := l.Guard.Set("ipv4/ip_forward", "1"); err != nil { // an open machine is its live control
		t.Fatal(err)
	}
	dir := t.TempDir()
	socket, token := filepath.Join(dir, "s"), filepath.Join(dir, "token")
	server := onLab(t, "provider", "serve", "--provider", "native:runc", "--listen", "unix:"+socket, "--token-file", token)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Guard.Do(server.Start); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(time.Minute, func() { server.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	if err != nil || line != "READY unix:"+socket+"\n" {
		t.Fatalf("%q, %v", line, err)
	}
	listed := on(t, l, "image", "ls").stdout
	image := busyboxReference.FindString(listed)
	if image == "" {
		t.Fatalf("no image in %q", listed)
	}
	judge := func(more ...string) (result, string) {
		junit := filepath.Join(t.TempDir(), "junit.xml")
		r := on(t, l, append([]string{"sandbox", "test", "unix:" + socket, "--token-file", token, "--image", image, "--repeat", "1", "--junit", junit}, more...)...)
		text, _ := os.ReadFile(junit)
		return r, string(text)
	}
	r, _ := judge("--suite", "nine", "--listed", "listed.names.test:8443", "--unlisted", "unlisted.names.test:8443")
	if r.code != 0 || !strings.Contains(r.stdout+r.stderr, "9 of 9 passed") {
		t.Errorf("%+v", r)
	}
	r, text := judge("--suite", "nine", "--run", "allowlist-egress")
	if r.code == 0 || !strings.Contains(r.stdout+r.stderr+text, "--listed and --unlisted") {
		t.Errorf("%+v\n%s", r, text)
	}
}
