// Package imagetest makes images for tests, from what the test machine has.
//
// Concurrency: every call makes files of its own.
package imagetest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// WorkloadID is the user and group id of "checkfu" in the image.
const WorkloadID = 10001

// epoch is the time of everything in the image.
var epoch = time.Unix(1700000000, 0).UTC()

// Busybox writes dir/busybox.tar, a `docker save` archive of one layer, and
// returns its path. The root holds the machine's own static busybox under the
// names of all its applets, users root and checkfu (10001), /tmp,
// /home/checkfu, /workspace, /mnt/session/outputs, mount points for a runtime,
// and one setuid-root program for attack tests, /bin/setuid-id, which is
// another copy of busybox (by its name it knows no applet: give it one as
// argument). The same busybox gives the same bytes.
//
// It skips t where there is no static busybox in PATH (Debian: busybox-static).
func Busybox(t testing.TB, dir string) string {
	t.Helper()
	program, applets := busybox(t)
	path := filepath.Join(dir, "busybox.tar")
	if err := os.WriteFile(path, save(t, "busybox", layer(t, program, applets, func(*writer) {})), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func busybox(t testing.TB) (program []byte, applets []string) {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox in PATH; Debian has it in busybox-static")
	}
	if program, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Skip("busybox is not static; Debian has a static one in busybox-static")
		}
	}
	out, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	return program, strings.Fields(string(out))
}

func layer(t testing.TB, program []byte, applets []string, more func(*writer)) []byte {
	w := newWriter(t)
	for _, d := range []string{"bin", "dev", "etc", "home", "mnt", "mnt/session", "proc", "root", "run", "sys", "usr", "usr/bin", "var"} {
		w.dir(d, 0o755, 0)
	}
	w.dir("tmp", 0o1777, 0)
	for _, d := range []string{"home/checkfu", "workspace", "mnt/session/outputs"} {
		w.dir(d, 0o755, WorkloadID)
	}
	w.file("etc/passwd", 0o644, []byte(fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\ncheckfu:x:%d:%[1]d:checkfu:/home/checkfu:/bin/sh\n", WorkloadID)))
	w.file("etc/group", 0o644, []byte(fmt.Sprintf("root:x:0:\ncheckfu:x:%d:\n", WorkloadID)))
	w.file("bin/busybox", 0o755, program)
	w.file("bin/setuid-id", 0o4755, program)
	for _, a := range applets {
		if a != "busybox" {
			w.link("bin/"+a, "busybox")
		}
	}
	more(w)
	return w.bytes()
}

func save(t testing.TB, name string, layer []byte) []byte {
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      epoch,
		"config": map[string]any{
			"Env":        []string{"PATH=/bin:/usr/bin"},
			"WorkingDir": "/workspace",
			"User":       fmt.Sprintf("%d:%[1]d", WorkloadID),
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{name + ":test"}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(t)
	w.file("manifest.json", 0o644, manifest)
	w.file("config.json", 0o644, config)
	w.file("layer.tar", 0o644, layer)
	return w.bytes()
}

// writer makes a tar in memory whose times and owners are fixed.
type writer struct {
	t   testing.TB
	buf bytes.Buffer
	tar *tar.Writer
}

func newWriter(t testing.TB) *writer {
	w := &writer{t: t}
	w.tar = tar.NewWriter(&w.buf)
	return w
}

func (w *writer) put(h *tar.Header, content []byte) {
	w.t.Helper()
	h.ModTime, h.Size = epoch, int64(len(content))
	if err := w.tar.WriteHeader(h); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.tar.Write(content); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) dir(name string, mode int64, id int) {
	w.put(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: id, Gid: id}, nil)
}

func (w *writer) file(name string, mode int64, content []byte) {
	w.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content)
}

func (w *writer) link(name, target string) {
	w.put(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (w *writer) bytes() []byte {
	if err := w.tar.Close(); err != nil {
		w.t.Fatal(err)
	}
	return w.buf.Bytes()
}
