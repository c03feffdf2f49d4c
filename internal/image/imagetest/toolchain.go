package imagetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Toolchain writes dir/toolchain.tar, the archive of Busybox with the machine's own
// C compiler and make besides, some 60 MB: cc and make in /usr/bin, and what they
// are linked to and link against, at the places where they have it here. There is no
// header of the C library.
//
// It skips t where there is no gcc or make in PATH.
func Toolchain(t testing.TB, dir string) string {
	t.Helper()
	program, applets := busybox(t)
	path := filepath.Join(dir, "toolchain.tar")
	if err := os.WriteFile(path, save(t, "toolchain", layer(t, program, applets, addToolchain)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func addToolchain(w *writer) {
	paths := []string{"/usr/include/stdc-predef.h"} // cc takes it by itself
	for _, name := range []string{"gcc", "make", "as", "ld"} {
		path, err := exec.LookPath(name)
		if err != nil {
			w.t.Skipf("no %s in PATH", name)
		}
		paths = append(paths, path)
	}
	for flag, names := range map[string][]string{
		"-print-prog-name=": {"cc1", "collect2", "lto-wrapper"},
		"-print-file-name=": {
			"liblto_plugin.so", "Scrt1.o", "crti.o", "crtn.o", "crtbeginS.o", "crtendS.o", "libgcc.a", "libgcc_s.so", "libgcc_s.so.1",
			"libc.so", "libc.so.6", "libc_nonshared.a",
		},
	} {
		for _, name := range names {
			paths = append(paths, strings.TrimSpace(output(w.t, "gcc", flag+name)))
		}
	}
	for _, path := range slices.Clone(paths) {
		if out, err := exec.Command("ldd", path).Output(); err == nil { // not an object file or a script
			for _, word := range strings.Fields(string(out)) {
				if strings.HasPrefix(word, "/") {
					paths = append(paths, word)
				}
			}
		}
	}
	place := placing{w: w, there: map[string]bool{"usr": true, "usr/bin": true}}
	for _, name := range []string{"lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			w.link(name, target)
			place.there[name] = true
		}
	}
	for _, path := range paths {
		place.file(path)
	}
	w.link("usr/bin/cc", "gcc")
}

func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// placing puts files of this machine at their places in an archive, once each.
type placing struct {
	w     *writer
	there map[string]bool
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
