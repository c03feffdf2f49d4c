package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Repositories in the wild: everything is staged, captured and cleaned, or
// named.
func TestRepositoriesInTheWild(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			repo := t.TempDir()
			git(t, repo, "init", "-q", "-b", "main")
			odd := []string{"new\nline", "-rf", "bad\xff\xfeutf8", strings.Repeat("n", 255), "café-\u0301", "sp ace", `quo"te`, "tab\t"}
			for _, name := range odd {
				write(t, filepath.Join(repo, "odd", name), "odd\n", 0o644)
			}
			write(t, filepath.Join(repo, "big16"), strings.Repeat("x", 16<<20), 0o644)
			write(t, filepath.Join(repo, "big17"), strings.Repeat("x", 17<<20), 0o644)
			for i := range 20000 {
				write(t, filepath.Join(repo, fmt.Sprintf("many/%d/%d", i/200, i)), fmt.Sprint(i), 0o644)
			}
			if err := os.Symlink("/no/where", filepath.Join(repo, "dangling")); err != nil {
				t.Fatal(err)
			}
			git(t, repo, "add", "-A")
			git(t, repo, "commit", "-qm", "wild")
			dir := t.TempDir()
			r := mustRun(t, boxed(provider, `
				set -e
				echo "$(find many -type f | wc -l) $(readlink dangling) $(wc -c < big16)"
				for f in odd/*; do echo changed >> "$f"; done
				rm many/0/1; printf y >> big16
				mkdir -p cache/mod && echo x > cache/mod/f && chmod -R 0555 cache
				mkfifo pipe`,
				"--repo", repo, "--patch", dir+"/p", "--json", dir+"/r.json", "--timeout", "120s")...)
			if r.stdout != "20000 /no/where 16777216\n" {
				t.Errorf("inside: %q", r.stdout)
			}
			record, err := os.ReadFile(dir + "/r.json")
			if err != nil {
				t.Fatal(err)
			}
			for _, named := range []string{"big17", "too_large", "pipe"} {
				if !strings.Contains(string(record), named) {
					t.Errorf("the record does not name %s", named)
				}
			}
			git(t, repo, "apply", dir+"/p")
			for _, name := range odd {
				if text, err := os.ReadFile(filepath.Join(repo, "odd", name)); err != nil || string(text) != "odd\nchanged\n" {
					t.Errorf("%q: %q %v", name, text, err)
				}
			}
			if _, err := os.Stat(filepath.Join(repo, "many/0/1")); err == nil {
				t.Error("the deletion is not in the patch")
			}
			if _, err := os.Stat(filepath.Join(repo, "big17")); err != nil {
				t.Error("the file that was too large to stage was taken for deleted")
			}
			if left := census(); len(left) > 0 {
				t.Errorf("left:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}
