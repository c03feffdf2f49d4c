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
		paths = append(paths, linkedTo(path)...) // of an object file or a script, none
	}
	place := newPlacing(w)
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
