package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWritten: what sh writes is there whole, under the name that was asked for, or
// not at all.
func TestWritten(t *testing.T) {
	shells := [][]string{{"sh", "-c"}}
	if path, err := exec.LookPath("busybox"); err == nil {
		shells = append(shells, []string{path, "sh", "-c"})
	}
	for _, shell := range shells {
		for name, c := range map[string]struct {
			at, size, x string
			want        string // the tree afterwards: path=content
			says        string // where it fails
		}{
			"new":               {"new", "3", "", "dir/ file=old new=abc", ""},
			"without a length":  {"new", "", "", "dir/ file=old new=abc", ""},
			"executable":        {"new", "3", "x", "dir/ file=old new*=abc", ""},
			"in place of":       {"file", "3", "", "dir/ file=abc", ""},
			"cut short":         {"file", "4", "", "dir/ file=old", ""},
			"a directory":       {"dir", "3", "", "dir/ file=old", "is a directory"},
			"no such directory": {"no/new", "3", "", "dir/ file=old", "no"},
		} {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "dir"), 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte("old"), 0o644)); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			cmd := exec.Command(shell[0], append(shell[1:], written, "sh", filepath.Join(dir, c.at), c.size, c.x)...)
			cmd.Stdin, cmd.Stderr = strings.NewReader("abc"), &said
			err := cmd.Run()
			if fails := c.says != "" || name == "cut short"; (err != nil) != fails || !strings.Contains(said.String(), c.says) {
				t.Errorf("%s, %s: %v, %s", shell[0], name, err, said.String())
			}
			if got := treeOf(t, dir); got != c.want {
				t.Errorf("%s, %s: %s", shell[0], name, got)
			}
		}
	}
}

// treeOf shows a directory: dir/, file=content, program*=content.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			all = append(all, name+"/")
			return nil
		}
		body, err := os.ReadFile(path)
		if info, _ := d.Info(); info != nil && info.Mode()&0o111 != 0 {
			name += "*"
		}
		all = append(all, name+"="+string(body))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestBounded(t *testing.T) {
	var to bytes.Buffer
	b := &bounded{to: &to, left: 5}
	for _, p := range []string{"abc", "", "de"} {
		if n, err := b.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("%q: %d, %v", p, n, err)
		}
	}
	if n, err := b.Write([]byte("f")); n != 0 || !errors.Is(err, errBeyond) || !errors.Is(b.why(), errBeyond) || to.String() != "abcde" {
		t.Errorf("%d, %v, %v, %q", n, err, b.why(), to.String())
	}
	r, w := io.Pipe()
	r.Close()
	b = &bounded{to: w, left: 5}
	if _, err := b.Write([]byte("a")); !errors.Is(err, io.ErrClosedPipe) || !errors.Is(b.why(), io.ErrClosedPipe) {
		t.Errorf("%v, %v", err, b.why())
	}
}
