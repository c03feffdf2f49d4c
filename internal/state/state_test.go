package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestOpen(t *testing.T) {
	for name, c := range map[string]struct {
		is   string // "" is no file
		want string // of the error, "" for none
	}{
		"none":          {"", ""},
		"this":          {"checkfu-state 1\n", ""},
		"newer":         {"checkfu-state 2\n", `expected a state of version 1 at most, as this checkfu writes (use the checkfu that wrote it, or another --state), got "2"`},
		"much newer":    {"checkfu-state 2147483647\n", `got "2147483647"`},
		"beyond":        {"checkfu-state 99999999999\n", `expected "checkfu-state N"`},
		"zero":          {"checkfu-state 0\n", `expected "checkfu-state N"`},
		"negative":      {"checkfu-state -1\n", `expected "checkfu-state N"`},
		"padded":        {"checkfu-state 01\n", `expected "checkfu-state N"`},
		"cut":           {"checkfu-state 1", `expected "checkfu-state N"`},
		"another thing": {"hello\x1b[2J", `got "hello\x1b[2J"`},
		"long":          {strings.Repeat("x", 1<<16), `got "` + strings.Repeat("x", most) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.is != "" {
				if err := os.WriteFile(filepath.Join(dir, "version"), []byte(c.is), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			checked, opened := Check(dir), Open(dir)
			got, err := os.ReadFile(filepath.Join(dir, "version"))
			if c.want == "" {
				if checked != nil || opened != nil || err != nil || string(got) != "checkfu-state 1\n" {
					t.Errorf("%v, %v, %q, %v", checked, opened, got, err)
				}
				return
			}
			for _, err := range []error{checked, opened} {
				if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
			}
			if string(got) != c.is {
				t.Errorf("a state that is not ours was written: %q", got)
			}
		})
	}
}

func TestCheckWritesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(Check(dir), Check(filepath.Join(dir, "absent"))); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestOpenAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if err := Open(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestVersionIsNoLink(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(filepath.Join(other, "x"), filepath.Join(dir, "version")); err != nil {
		t.Fatal(err)
	}
	if err := Open(dir); err == nil {
		t.Error("a link was taken for the version")
	}
	if left, err := os.ReadDir(other); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"checkfu-state 1\n", "checkfu-state 2147483647\n", "checkfu-state 01\n", "checkfu-state 1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := parse(s); ok && (n < 1 || !strings.HasPrefix(s, "checkfu-state ") || !strings.HasSuffix(s, "\n")) {
			t.Errorf("%q: %d", s, n)
		}
	})
}
