package vectors_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/evidence/vectors"
)

// TestTheVerifierInPython_Agrees on every vector, from a directory of its own,
// and sees a flaw in each kind.
func TestTheVerifierInPython_Agrees(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, vectors.Files()); err != nil {
		t.Fatal(err)
	}
	run := func() (string, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, python, filepath.Join(dir, "check.py")).CombinedOutput()
		return string(out), err == nil
	}
	if out, ok := run(); !ok || !strings.HasSuffix(out, " 0 failed\n") {
		t.Fatalf("%s", out)
	}
	flaws := map[string][2]string{
		"receipt/valid.json":             {`\"lease_epoch\":3`, `\"lease_epoch\":4`},
		"receipt/other-domain.json":      {`"reason": "domain"`, `"reason": "signature"`},
		"receipt/four-facts.json":        {`"accept": false`, `"accept": true`},
		"receipt/expired.json":           {`"now": "2026-12-30T10:20:00.000Z"`, `"now": "2026-12-30T10:19:59.999Z"`},
		"receipt/low-order-key.json":     {`"reason": "key"`, `"reason": "unlisted_key"`},
		"attesters/other-encoding.json":  {`eeffff`, `eaffff`},
		"attesters/unknown-field.json":   {`\"open\":true,`, ``},
		"receipt/other-revision.json":    {`"acme/8"`, `"acme/7"`},
		"receipt/surviving-mutant.json":  {`"mutant"`, `"case"`},
		"receipt/nobody-listed.json":     {`"unlisted_key"`, `"signature"`},
		"receipt/tampered-receipt.json":  {`\"lease_epoch\":4`, `\"lease_epoch\":3`},
		"receipt/trailing-newline.json":  {`"not_canonical"`, `"malformed"`},
		"receipt/ninety-one-days.json":   {`"time"`, `"expired"`},
		"receipt/other-algorithm.json":   {`\"none\"`, `\"ed25519\"`},
		"attesters/low-order.json":       {`"accept": false`, `"accept": true`},
		"receipt/borrowed-key.json":      {`"reason": "signature"`, `"reason": "unlisted_key"`},
		"receipt/killed-by-a-skip.json":  {`"mutant"`, `"case"`},
		"attesters/empty.json":           {`"accept": true`, `"accept": false`},
		"receipt/relabelled-domain.json": {`"reason": "signature"`, `"reason": "domain"`},
	}
	for path, edit := range flaws {
		file := filepath.Join(dir, "scenario", filepath.FromSlash(path))
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The last place: verdicts stand behind the files.
		i := strings.LastIndex(string(data), edit[0])
		if i < 0 {
			t.Fatalf("%s: no %q", path, edit[0])
		}
		if err := os.WriteFile(file, []byte(string(data[:i])+edit[1]+string(data[i+len(edit[0]):])), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, ok := run()
	if ok {
		t.Error("every vector has a flaw and nothing is said")
	}
	for path := range flaws {
		if !strings.Contains(out, path+": ") {
			t.Errorf("%s: its flaw is not seen", path)
		}
	}
}
