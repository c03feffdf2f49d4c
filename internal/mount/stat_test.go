package mount

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatchLines(t *testing.T) {
	w := newWorld(t)
	w.sh(w.repo, start+`; git add -A; git commit -qm start`)
	_, patch := w.changed(GitOptions{}, `echo 2 >> f; rm gone; printf 'a\000c' > bin; printf 'x\ny\n' > "$(printf 'a\tb\n')"; chmod +x tool; echo > ../escape`)
	temp := t.TempDir()
	got, err := PatchLines(context.Background(), bytes.NewReader(patch), temp)
	want := []FileLines{{Path: "a\tb", Added: 2}, {Path: "bin", Binary: true}, {Path: "f", Added: 1}, {Path: "gone", Deleted: 1}, {Path: "tool"}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	if left := everything(t, temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, bad := range []string{"", "hello"} {
		if _, err := PatchLines(context.Background(), strings.NewReader(bad), temp); err == nil {
			t.Errorf("%q is a patch", bad)
		}
	}
}

func FuzzParseNumstat(f *testing.F) {
	for _, s := range []string{"1\t2\tf", "-\t-\tbin", "1\t2\ta\tb", "1\t-\tf", "\t\t", "-1\t0\tf"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parseNumstat(s)
		if err == nil && (l.Path == "" || l.Added < 0 || l.Deleted < 0 || l.Binary && l.Added+l.Deleted != 0 || !strings.HasSuffix(s, "\t"+l.Path)) {
			t.Errorf("%q: %+v", s, l)
		}
	})
}
