package mount

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkStage10000 stages a repository of 10,000 files, beside cp -r of
// its working tree and git clone of it.
func BenchmarkStage10000(b *testing.B) {
	repo := filepath.Join(b.TempDir(), "repo")
	if err := os.Mkdir(repo, 0o755); err != nil {
		b.Fatal(err)
	}
	manyFiles(b, repo, 10_000)
	cmd := exec.Command("sh", "-ec", "git init -q; git add .; git -c user.name=a -c user.email=a@localhost commit -qm many")
	cmd.Dir = repo
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatal(err, string(out))
	}
	for _, tt := range []struct {
		name string
		opts GitOptions
	}{
		{"plan", GitOptions{}},
		{"plan without git", GitOptions{NoGitDir: true}},
		{"plan of commit", GitOptions{CommittedOnly: true, NoGitDir: true}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				tt.opts.Dir = repo
				p, err := Git(context.Background(), tt.opts)
				if err != nil {
					b.Fatal(err)
				}
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("plan and stage", func(b *testing.B) {
		for b.Loop() {
			p, err := Git(context.Background(), GitOptions{Dir: repo})
			if err != nil {
				b.Fatal(err)
			}
			stage(b, p, b.TempDir())
			if err := p.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("directory", func(b *testing.B) {
		for b.Loop() {
			p, err := Directory(context.Background(), DirOptions{Dir: repo})
			if err != nil {
				b.Fatal(err)
			}
			if err := p.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, c := range [][]string{{"cp", "-r"}, {"git", "clone", "-q", "--no-local"}} {
		b.Run(c[0], func(b *testing.B) {
			for b.Loop() {
				if out, err := exec.Command(c[0], append(c[1:], repo, filepath.Join(b.TempDir(), "to"))...).CombinedOutput(); err != nil {
					b.Fatal(err, string(out))
				}
			}
		})
	}
}
