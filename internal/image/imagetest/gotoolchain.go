package imagetest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Go writes dir/go.tar, the archive of Busybox with the machine's own Go besides, some
// 140 MB: /usr/bin/go, and what it compiles programs with and out of.
//
// It skips t where there is no go in PATH.
func Go(t testing.TB, dir string) string {
	t.Helper()
	program, applets := busybox(t)
	path := filepath.Join(dir, "go.tar")
	if err := os.WriteFile(path, save(t, "go", layer(t, program, applets, addGo)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func addGo(w *writer) {
	if _, err := exec.LookPath("go"); err != nil {
		w.t.Skip("no go in PATH")
	}
	root := strings.TrimSpace(output(w.t, "go", "env", "GOROOT"))
	tools := strings.TrimSpace(output(w.t, "go", "env", "GOTOOLDIR"))
	program := filepath.Join(root, "bin", "go")
	paths := []string{program, filepath.Join(root, "VERSION"), filepath.Join(root, "go.env")}
	for _, name := range []string{"asm", "compile", "link"} {
		paths = append(paths, filepath.Join(tools, name))
	}
	for _, path := range paths {
		paths = append(paths, linkedTo(path)...)
	}
	src := filepath.Join(root, "src")
	for _, dir := range []string{filepath.Join(root, "pkg", "include"), src} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && (e.Name() == "testdata" || path == filepath.Join(src, "cmd")):
				return fs.SkipDir
			case e.Type().IsRegular() && !strings.HasSuffix(path, "_test.go"):
				paths = append(paths, path)
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	place := newPlacing(w)
	for _, path := range paths {
		place.file(path)
	}
	if program != "/usr/bin/go" {
		w.link("usr/bin/go", program)
	}
}
