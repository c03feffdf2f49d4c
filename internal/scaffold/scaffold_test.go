package scaffold

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/wire/vectors"
)

// Every language makes a program that can be run, with the kit beside it and
// nothing of the example's name in it.
func TestWrite(t *testing.T) {
	for _, lang := range Languages() {
		for _, tier := range append(Tiers(), "") {
			t.Run(lang+" "+tier, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "new")
				if err := Write(dir, Options{lang, tier, "acme-1"}); err != nil {
					t.Fatal(err)
				}
				if info, err := os.Stat(filepath.Join(dir, "run")); err != nil || info.Mode().Perm() != 0o755 {
					t.Error(info, err)
				}
				named := 0
				err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
					if err != nil || d.IsDir() || strings.HasPrefix(path, "kit/") {
						return err
					}
					data, err := os.ReadFile(filepath.Join(dir, path))
					if bytes.Contains(data, []byte(languages[lang].given["name"])) || bytes.Contains(data, []byte("{{name")) {
						t.Errorf("%s is not filled in", path)
					}
					if bytes.Contains(data, []byte("acme-1")) {
						named++
					}
					return err
				})
				if err != nil || named < 2 {
					t.Error(named, err)
				}
				err = fs.WalkDir(vectors.Files(), ".", func(path string, d fs.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return err
					}
					want, err := fs.ReadFile(vectors.Files(), path)
					got, _ := os.ReadFile(filepath.Join(dir, "kit", path))
					if !bytes.Equal(got, want) {
						t.Errorf("kit/%s differs", path)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	good := Options{"python", DayOne, "acme"}
	for _, c := range []struct {
		option string
		change func(*Options)
	}{
		{"lang", func(o *Options) { o.Language = "" }},
		{"lang", func(o *Options) { o.Language = "Python" }},
		{"tier", func(o *Options) { o.Tier = "Minimum" }},
		{"tier", func(o *Options) { o.Tier = "retained" }},
		{"tier", func(o *Options) { o.Language, o.Tier = "typescript", "most" }},
		{"name", func(o *Options) { o.Name = "" }},
		{"name", func(o *Options) { o.Name = "a\"\nimport os" }},
		{"name", func(o *Options) { o.Name = strings.Repeat("a", 256) }},
	} {
		o, dir := good, filepath.Join(t.TempDir(), "new")
		c.change(&o)
		err := Write(dir, o)
		if wrong := (*OptionError)(nil); !errors.As(err, &wrong) || wrong.Option != c.option {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: something was made", o)
		}
	}
}

// What was begun and cannot be finished goes again, and what was there stays.
func TestWriteUndoes(t *testing.T) {
	parent := t.TempDir()
	held := filepath.Join(parent, "held")
	if err := os.WriteFile(held, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(parent, Options{"python", DayOne, "acme"}); !errors.As(err, new(*OptionError)) {
		t.Error(err)
	}
	broken := languages["python"]
	broken.lines = map[string]string{"name": "no such line %q", "tier": "nor this %q"}
	languages["broken"] = broken
	defer delete(languages, "broken")
	dir := filepath.Join(parent, "new")
	if err := Write(dir, Options{"broken", DayOne, "acme"}); err == nil {
		t.Error("it was made")
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
}
