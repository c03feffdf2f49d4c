package examples

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
)

// TestRootless: without root the workload has the user of the provider, so that
// its setuid files are that user's. Nobody else reaches them.
func TestRootless(t *testing.T) {
	t.Parallel()
	const nobody = "65534"
	if _, err := exec.LookPath("setpriv"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and setpriv, to be another user")
	}
	// How many of its files can be seen from here: the disks of one lie in mounts of
	// its own also without root.
	for language, seen := range map[string]int{"go": 1, "python": 1, "typescript": 0} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "rootless")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(dir, "copy", "run")
			if language == "go" {
				program = filepath.Join(dir, "provider")
				goBuild(t, "../../examples/provider-go", program)
			} else if err := scaffold.Write(filepath.Dir(program), scaffold.Options{Language: language, Tier: scaffold.DayOne, Name: "acme"}); err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(dir, "script")
			text := fmt.Sprintf("#!/bin/sh\nset -e\nPATH=/usr/local/bin:/usr/bin:/bin:$PATH\n"+
				"chown %[1]s:%[1]s \"${CHECKFU_STATE%%/*}\"\nexec setpriv --reuid=%[1]s --regid=%[1]s --clear-groups '%[2]s'\n", nobody, program)
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			p, id := machine(t, script)
			p.durable = language == "python" // the most that each has
			s, err := p.Execute(t.Context(), id, sandbox.Command{
				Executable: "/bin/sh", Arguments: []string{"-c", "cp /bin/true /mnt/session/outputs/ && chmod 4755 /mnt/session/outputs/true"},
				WorkingDirectory: "/", Environment: map[string]string{}, TimeoutSeconds: 60, OutputLimitBytes: 4096,
			})
			if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
				t.Fatalf("%+v, %v", s, err)
			}
			found := 0
			err = filepath.WalkDir(p.state, func(path string, _ fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := os.Stat(path)
				if err != nil || info.Mode()&fs.ModeSetuid == 0 {
					return err
				}
				found++
				as := exec.Command("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "test", "-x", path)
				if err := as.Run(); err == nil {
					t.Errorf("another user can run %s", path)
				}
				return nil
			})
			if err != nil || found != seen {
				t.Errorf("%d setuid files, %v", found, err)
			}
		})
	}
}
