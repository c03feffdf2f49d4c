package native

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// trapped is a running machine with the hostile program in it and read-only
// and read-write mounts in one another.
func trapped(t *testing.T, p *Provider) sandbox.InstanceID {
	t.Helper()
	vendor := sandbox.Mount{MountPath: "/workspace/repo/vendor", Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}
	inner := sandbox.Mount{MountPath: "/data/in/rw", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}
	id := provision(t, p, request(p, work, vendor, data, inner))
	program, err := os.ReadFile(buildStatic(t, "./testdata/hostile"))
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		"/workspace/repo/hostile": program, "/workspace/repo/mine": []byte("mine"), "/data/in/rw/mine": []byte("mine"),
		"/workspace/repo/vendor/file": []byte("sealed"), "/data/in/file": []byte("sealed"),
	} {
		if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: path, Content: content, Executable: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// Each line that begins with "escape" is a way out, and must have been refused;
// "control" is the same call where it is allowed, and must have worked.
func TestEnforcementStatement_NoWayOutFromInside(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := trapped(t, p)
		for _, script := range []string{
			"inherited",
			"namespaced /data/in", "namespaced /workspace/repo/vendor",
			"cross /data/in /workspace/repo", "cross /workspace/repo/vendor /workspace/repo", "cross /data/in /data/in/rw",
		} {
			s := sh(t, p, id, "/workspace/repo/hostile "+script)
			mustExit(t, s, 0)
			tried := 0
			for line := range strings.Lines(string(s.Stdout)) {
				line = strings.TrimSuffix(line, "\n")
				ok := strings.HasSuffix(line, ": ok")
				switch {
				case strings.HasPrefix(line, "escape") && ok, strings.HasPrefix(line, "inherited"), strings.HasPrefix(line, "control") && !ok:
					t.Errorf("%s: %s", script, line)
				}
				tried++
			}
			if tried < 5 && script != "inherited" {
				t.Errorf("%s tried only:\n%s%s", script, s.Stdout, s.Stderr)
			}
			mustExit(t, sh(t, p, id, "rm -f /workspace/repo/linked-mine /data/in/rw/linked-mine"), 0)
		}
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		// What the host sees, not what the workload says.
		for _, i := range []string{"0", "1", "2", "3"} {
			dir := filepath.Join(in.at.home(), "mounts", i)
			content, err := os.ReadFile(filepath.Join(dir, "file"))
			if err == nil && string(content) != "sealed" {
				t.Errorf("%s/file holds %q", dir, content)
			}
			for _, name := range []string{"owned", "linked", "renamed", "linked2"} {
				if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
					t.Errorf("%s/%s exists", dir, name)
				}
			}
		}
		// It may kill all that is its own, and not what holds the machine up.
		p.Execute(t.Context(), id, shell("kill -9 -1; kill -9 1; kill -STOP 1; kill -SEGV 1"))
		mustExit(t, sh(t, p, id, "true"), 0)
	})
}

// A crash in the machine leaves nothing that a host could collect.
func TestEnforcementStatement_NoCoreDump(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		c := shell("kill -SEGV $$")
		c.WorkingDirectory = "/tmp"
		if s, err := p.Execute(t.Context(), id, c); err != nil || s.Exit.Signal != "SIGSEGV" {
			t.Errorf("%s %v", showExit(s), err)
		}
		s := sh(t, p, id, "ls -A /tmp; grep 'Max core' /proc/self/limits")
		if bytes.Contains(s.Stdout, []byte("core.")) || bytes.HasPrefix(s.Stdout, []byte("core")) {
			t.Errorf("%s", s.Stdout)
		}
		// 0 would not do: a host that pipes dumps to a program ignores it.
		if p.opt.Driver.Name() == "runc" && strings.Join(strings.Fields(string(s.Stdout)), " ") != "Max core file size 1 1 bytes" {
			t.Errorf("%s", s.Stdout)
		}
	})
}

// Nothing that a command leaves behind survives it, however deep it hid.
func TestExecute_NoNamespaceHidesASurvivor(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := trapped(t, p)
		s := sh(t, p, id, "/workspace/repo/hostile burrow /bin/sleep 94")
		mustExit(t, s, 0)
		if !bytes.Contains(s.Stdout, []byte("burrowed: ok")) {
			t.Errorf("nothing was left behind, so it proves nothing: %s", s.Stdout)
		}
		if s := sh(t, p, id, "grep -ls '[s]leep' /proc/[0-9]*/cmdline"); len(s.Stdout) > 0 {
			t.Errorf("survivors: %s", s.Stdout)
		}
	})
}

// B01: standard input ends by itself, whatever it is, and if it did not the
// timeout would end the command.
func TestExecute_StandardInputEnds(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		for _, input := range []string{"", "abc"} {
			c := shell("cat")
			c.Stdin, c.TimeoutSeconds = []byte(input), 2
			begin := time.Now()
			s, err := p.Execute(t.Context(), id, c)
			if took := time.Since(begin); err != nil || s.TimedOut || string(s.Stdout) != input || took > 1500*time.Millisecond {
				t.Errorf("%q after %s: %q %s %v", input, took, s.Stdout, showExit(s), err)
			}
		}
		proc := open(t, p, id, "exec cat") // its input is never closed
		c := shell("cat <&0; sleep 30")
		c.TimeoutSeconds = 1
		if s, err := p.Execute(t.Context(), id, c); err != nil || !s.TimedOut {
			t.Errorf("%s %v", showExit(s), err)
		}
		if err := proc.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
