package vectors_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/wire/vectors"
)

// languages are the codecs that an author can copy.
var languages = []struct{ program, file string }{{"python3", "check.py"}, {"node", "check.mjs"}}

func runs(t *testing.T, program string, args ...string) (output string, ok bool) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("no %s here", program)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	return string(out), err == nil
}

// TestCodecsInOtherLanguages_Agree on every scenario, from a directory of their
// own, as the kit is handed out.
func TestCodecsInOtherLanguages_Agree(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, vectors.Files()); err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		t.Run(l.program, func(t *testing.T) {
			out, ok := runs(t, l.program, filepath.Join(dir, l.file))
			if !ok || !strings.HasSuffix(out, " 0 failed\n") {
				t.Errorf("%s", out)
			}
		})
	}
}

// TestCodecsInOtherLanguages_SeeAFlaw: one edit in a scenario of each kind that
// they compute, and they say which.
func TestCodecsInOtherLanguages_SeeAFlaw(t *testing.T) {
	flaws := map[string][2]string{
		"message/window.json":                  {`"input_credit": 262144`, `"input_credit": 262145`},
		"error/overloaded.json":                {`"hex": "7b22`, `"hex": "7b23`},
		"refused-message/duplicate-key.json":   {`2c22696e7374616e63655f6964223a22696e73742d3222`, ``},
		"refused-message/minus-zero.json":      {`2d30`, `30`},
		"exchange/write-file.json":             {`"digest": "sha256:`, `"digest": "sha256:0`},
		"frame/11-out.json":                    {`"hex": "11`, `"hex": "12`},
		"refused-frame/one-byte-too-long.json": {`"too_long"`, `"unknown_type"`},
		"escape/one-byte.json":                 {`"raw_hex": "ff"`, `"raw_hex": "fe"`},
		"canonical/key-order.json":             {`"canonical": "7b`, `"canonical": "5b`},
		"timestamp/february-30.json":           {`false`, `true`},
		"identity/09-lease-epoch.json":         {`"got": "8"`, `"got": "9"`},
		"stream/violation-gap.json":            {`"violation"`, `"complete"`},
		"stream/resumed.json":                  {`"output_hex": "68`, `"output_hex": "69`},
	}
	dir := t.TempDir()
	for path, edit := range flaws {
		data, err := fs.ReadFile(vectors.Files(), "scenario/"+path)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(data, []byte(edit[0]), []byte(edit[1]), 1)
		if bytes.Equal(changed, data) {
			t.Fatalf("%s: the edit changes nothing", path)
		}
		file := filepath.Join(dir, "scenario", filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, changed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range languages {
		t.Run(l.program, func(t *testing.T) {
			script, err := fs.ReadFile(vectors.Files(), l.file)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), l.file)
			if err := os.WriteFile(file, script, 0o644); err != nil {
				t.Fatal(err)
			}
			out, ok := runs(t, l.program, file, dir)
			if ok {
				t.Error("ends well")
			}
			for path := range flaws {
				name := strings.TrimSuffix(path, ".json")
				if !strings.Contains(out, name) {
					t.Errorf("%s is not seen", name)
				}
			}
		})
	}
}
