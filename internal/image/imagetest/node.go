package imagetest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// NPM is the program of npm in the image of Node, for /usr/bin/node.
const NPM = "/usr/lib/node_modules/npm/bin/npm-cli.js"

// Node writes dir/node.tar, the archive of Busybox with the machine's own Node.js and
// npm besides, some 120 MB: /usr/bin/node with what it is linked to, and NPM.
//
// It skips t where there is no node in PATH, or no npm where NPM says.
func Node(t testing.TB, dir string) string {
	t.Helper()
	program, applets := busybox(t)
	path := filepath.Join(dir, "node.tar")
	if err := os.WriteFile(path, save(t, "node", layer(t, program, applets, addNode)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func addNode(w *writer) {
	node, err := exec.LookPath("node")
	if err != nil {
		w.t.Skip("no node in PATH")
	}
	if _, err := os.Stat(NPM); err != nil {
		w.t.Skip("no npm: ", err)
	}
	place := newPlacing(w)
	for _, path := range append(linkedTo(node), node) {
		place.file(path)
	}
	if real, err := filepath.EvalSymlinks(node); err == nil && real != "/usr/bin/node" && node != "/usr/bin/node" {
		w.link("usr/bin/node", real)
	}
	err = filepath.WalkDir(filepath.Dir(filepath.Dir(NPM)), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			place.file(path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
