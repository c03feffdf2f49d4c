package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var providers = []string{"native", "native:runc"}

func TestRunShowsTheConfinementThatItClaims(t *testing.T) {
	repo := repository(t, map[string]string{"a": "a\n"})
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			r := mustRun(t, boxed(provider, "id; mount; cat /proc/self/status", "--repo", repo)...)
			for _, want := range []string{
				"uid=10001(checkfu) gid=10001(checkfu)",
				"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
				" on /workspace/repo type ",
			} {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("no %q in\n%s", want, r.stdout)
				}
			}
			for _, axis := range []string{
				"sandbox_isolation", "root_read_only", "non_root", "no_new_privileges", "capabilities_dropped",
				"mounts_sealed", "disk_limit", "network_policy", "resource_limits", "runner_enforced",
			} {
				if !strings.Contains(r.stderr, axis) {
					t.Errorf("the summary does not name %s:\n%s", axis, r.stderr)
				}
			}
		})
	}
}

func TestRunEndsWithTheCommandsOwnExit(t *testing.T) {
	for _, provider := range providers {
		for script, code := range map[string]int{
			"exit 0": 0, "exit 3": 3, "exit 137": 137, "kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15,
		} {
			if r := run(t, boxed(provider, script, "--quiet")...); r.code != code {
				t.Errorf("%s: %s: exit %d, want %d\n%s", provider, script, r.code, code, r.stderr)
			}
		}
		for program, code := range map[string]int{"no-such-program": 127, "/etc/passwd": 126} {
			if r := run(t, "run", "--image", "busybox", "--provider", provider, "--", program); r.code != code {
				t.Errorf("%s: %s: exit %d, want %d\n%s", provider, program, r.code, code, r.stderr)
			}
		}
		r := run(t, boxed(provider, "echo so far; sleep 60", "--timeout", "2s")...)
		if r.code != 124 || r.stdout != "so far\n" {
			t.Errorf("%s: timeout: %+v", provider, r)
		}
	}
}

// A caller that leaves standard input open must not hang the command, and one
// that gives input must see all of it arrive.
func TestRunStandardInput(t *testing.T) {
	for _, provider := range providers {
		for _, size := range []int{0, 3, 16 << 20} {
			cmd := command(t, boxed(provider, "wc -c", "--quiet", "--timeout", "60s")...)
			cmd.Stdin = bytes.NewReader(make([]byte, size))
			if r := finish(t, cmd); strings.TrimSpace(r.stdout) != fmt.Sprint(size) {
				t.Errorf("%s: %d bytes: %+v", provider, size, r)
			}
		}
	}
}

func TestRunCarriesRawBytes(t *testing.T) {
	var raw []byte
	for range 1000 {
		for b := range 256 {
			raw = append(raw, byte(b))
		}
		raw = append(raw, "\U0001F680"...)
	}
	for _, provider := range providers {
		cmd := command(t, boxed(provider, "cat", "--quiet")...)
		cmd.Stdin = bytes.NewReader(raw)
		if r := finish(t, cmd); r.stdout != string(raw) {
			t.Errorf("%s: %d of %d bytes came back", provider, len(r.stdout), len(raw))
		}
	}
}

func TestRunGivesBackAPatchAndOutputs(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			repo := repository(t, map[string]string{
				"keep": "keep\n", "edit": "one\ntwo\n", "gone": "x\n", "mode": "#!/bin/sh\n", ".gitignore": ".env\n", "dir/deep/file": "deep\n",
			})
			write(t, filepath.Join(repo, ".env"), "SECRET=canary-not-staged\n", 0o600)
			write(t, filepath.Join(repo, "edit"), "one\ntwo\nuncommitted\n", 0o644)
			before := snapshotTree(t, repo)
			dir := t.TempDir()
			r := mustRun(t, boxed(provider, `
				test ! -e .env && grep -q uncommitted edit &&
				echo three >> edit && rm gone && chmod +x mode && printf '\000\001\377' > blob && mkdir -p new/dir && echo n > new/dir/n &&
				mkdir -p /mnt/session/outputs/sub && echo out > /mnt/session/outputs/sub/o`,
				"--repo", repo, "--out", dir+"/out", "--patch", dir+"/p")...)
			if after := snapshotTree(t, repo); after != before {
				t.Errorf("the working tree was touched:\n%s\n%s", before, after)
			}
			if text, err := os.ReadFile(dir + "/out/sub/o"); err != nil || string(text) != "out\n" {
				t.Errorf("output %q %v", text, err)
			}
			if !strings.Contains(r.stderr, "1 ignored") {
				t.Errorf("what was left out is not said:\n%s", r.stderr)
			}
			git(t, repo, "apply", dir+"/p")
			for name, want := range map[string]string{"edit": "one\ntwo\nuncommitted\nthree\n", "blob": "\x00\x01\xff", "new/dir/n": "n\n"} {
				if text, err := os.ReadFile(filepath.Join(repo, name)); err != nil || string(text) != want {
					t.Errorf("%s: %q %v", name, text, err)
				}
			}
			if _, err := os.Stat(filepath.Join(repo, "gone")); err == nil {
				t.Error("the deletion is not in the patch")
			}
			if info, err := os.Stat(filepath.Join(repo, "mode")); err != nil || info.Mode()&0o100 == 0 {
				t.Error("the mode is not in the patch")
			}
		})
	}
}

// snapshotTree is a readable form of a tree, .git left out.
func snapshotTree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var text []byte
		if info.Mode().IsRegular() {
			text, err = os.ReadFile(path)
		}
		fmt.Fprintf(&b, "%s %s %q %s\n", path, info.Mode(), text, info.ModTime())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A value given with --env is seen by the command and by nobody else.
func TestRunKeepsEnvironmentValuesInsideTheMachine(t *testing.T) {
	const canary = "c4n4ry-7f1e-value"
	for _, provider := range providers {
		dir := t.TempDir()
		r := mustRun(t, boxed(provider, `echo "$TOKEN" | wc -c; sleep 1`, "--env", "TOKEN="+canary, "--json", dir+"/record.json")...)
		if strings.TrimSpace(r.stdout) != fmt.Sprint(len(canary)+1) {
			t.Errorf("the command saw %q", r.stdout)
		}
		if strings.Contains(r.stderr, canary) {
			t.Error("it is in the summary")
		}
		for _, root := range []string{dir, state} {
			filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(canary)) {
						t.Errorf("it is in %s", path)
					}
				}
				return nil
			})
		}
		record, err := os.ReadFile(dir + "/record.json")
		if err != nil || !bytes.Contains(record, []byte(`"TOKEN"`)) {
			t.Errorf("the record does not name the key: %v", err)
		}
	}
}

func TestRunInterrupted(t *testing.T) {
	for _, provider := range providers {
		for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			for name, script := range map[string]string{
				"polite":   "echo ready; exec sleep 60",
				"stubborn": "trap '' INT TERM; echo ready; while :; do sleep 1; done",
			} {
				cmd := command(t, boxed(provider, script, "--quiet")...)
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				out.Read(make([]byte, 6))
				begin := time.Now()
				kill(cmd, signal)
				cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != code {
					t.Errorf("%s %s %s: exit %d, want %d", provider, signal, name, got, code)
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("%s %s %s: took %s", provider, signal, name, took)
				}
			}
		}
	}
	if left := census(); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}

func TestBadInputGetsOneClearLineAndLeavesNothing(t *testing.T) {
	repo := repository(t, map[string]string{"a": "a"})
	empty := t.TempDir()
	for _, c := range []struct{ args, names string }{
		{"run", ""},
		{"run --memory 0 -- true", "--memory"},
		{"run --memory -1 -- true", "--memory"},
		{"run --memory 9e99 -- true", "--memory"},
		{"run --memory 99999999999999999999 -- true", "--memory"},
		{"run --cpus NaN -- true", "--cpus"},
		{"run --disk 1XB -- true", "--disk"},
		{"run --pids 0 -- true", "--pids"},
		{"run --timeout 0s -- true", "--timeout"},
		{"run --timeout -5m -- true", "--timeout"},
		{"run --timeout 300000h -- true", "--timeout"},
		{"run --network host -- true", "--network"},
		{"run --allow *.example.com:443 -- true", "--allow"},
		{"run --env =x -- true", "--env"},
		{"run --env 1A=x -- true", "--env"},
		{"run --provider docker -- true", "--provider"},
		{"run --image no-such-image -- true", "--image"},
		{"run --image busybox --repo /no/such/dir -- true", "--repo"},
		{"run --image busybox --repo " + empty + " -- true", "--repo"},
		{"run --image busybox --repo " + repo + "@no-such-revision -- true", "--repo"},
		{"run --image busybox --mount " + empty + ":/proc/x -- true", "--mount"},
		{"run --image busybox --mount " + empty + ":relative -- true", "--mount"},
		{"run --image busybox --mount " + empty + ":/a:rx -- true", "--mount"},
		{"run --image busybox --mount /no/such:/a -- true", "--mount"},
		{"run --no-such-flag -- true", "no-such-flag"},
		{"image import /no/such.tar", "/no/such.tar"},
		{"image import " + repo + "/a", "a"},
		{"image pull name:tag", "name:tag"},
		{"image rm no-such-image", "no-such-image"},
		{"no-such-command", "no-such-command"},
	} {
		r := run(t, strings.Fields(c.args)...)
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		if r.code != 2 || r.stdout != "" || !strings.HasPrefix(lines[0], "checkfu: ") || !strings.Contains(r.stderr, c.names) {
			t.Errorf("%s: exit %d\n%s%s", c.args, r.code, r.stdout, r.stderr)
		}
		if len(lines) != 1 {
			t.Errorf("%s: %d lines:\n%s", c.args, len(lines), r.stderr)
		}
	}
	if left := census(); len(left) > 0 {
		t.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}
