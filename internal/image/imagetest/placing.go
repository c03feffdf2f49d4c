package imagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// placing puts files of this machine at their places in an archive, once each.
type placing struct {
	w     *writer
	there map[string]bool
}

// newPlacing begins with the links that lead to the directories of libraries here.
func newPlacing(w *writer) placing {
	place := placing{w: w, there: map[string]bool{"usr": true, "usr/bin": true}}
	for _, name := range []string{"lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			w.link(name, target)
			place.there[name] = true
		}
	}
	return place
}

func (p placing) file(path string) {
	p.w.t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		p.w.t.Fatal(err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		p.w.t.Fatal(err)
	}
	if name := filepath.Join(parent, filepath.Base(path)); name != real && p.make(name) {
		p.w.link(name[1:], real)
	}
	if !p.make(real) {
		return
	}
	content, err := os.ReadFile(real)
	if err != nil {
		p.w.t.Fatal(err)
	}
	p.w.file(real[1:], 0o755, content)
}

// make makes the directories above a file that is not there yet.
func (p placing) make(path string) bool {
	name := path[1:]
	if p.there[name] {
		return false
	}
	p.there[name] = true
	for i := range name {
		if name[i] == '/' && !p.there[name[:i]] {
			p.there[name[:i]] = true
			p.w.dir(name[:i], 0o755, 0)
		}
	}
	return true
}

// linkedTo are the libraries of a program; of what is none, nothing.
func linkedTo(program string) (libraries []string) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			libraries = append(libraries, word)
		}
	}
	return libraries
}
