package contain

import (
	"errors"
	"path"
	"strings"
	"testing"
)

// longPath is an admissible path of exactly n bytes.
func longPath(n int) string {
	text := strings.Repeat(strings.Repeat("d", 200)+"/", n/201)
	if rest := n - len(text); rest > 0 {
		return text + strings.Repeat("f", rest)
	}
	return text[:len(text)-2] + "ff" // a slash may not be the last byte
}

func TestRel(t *testing.T) {
	name255 := strings.Repeat("n", 255)
	tests := []struct {
		path string
		want Refusal // "" is admitted
	}{
		{"a", ""},
		{"a/b/c", ""},
		{"...", ""},
		{"..a/b..", ""},
		{"-rf", ""},
		{"new\nline", ""},
		{"\xff\xfe", ""},
		{"a\\b", ""},
		{name255, ""},
		{name255 + "/" + name255, ""},
		{longPath(4096), ""},
		{"", ErrInvalidPath},
		{".", ErrInvalidPath},
		{"./a", ErrInvalidPath},
		{"a/.", ErrInvalidPath},
		{"a//b", ErrInvalidPath},
		{"a//./b", ErrInvalidPath},
		{"a/", ErrInvalidPath},
		{"a\x00b", ErrInvalidPath},
		{name255 + "n", ErrInvalidPath},
		{longPath(4097), ErrInvalidPath},
		{"/", ErrOutsideRoot},
		{"/etc/passwd", ErrOutsideRoot},
		{"..", ErrOutsideRoot},
		{"a/..", ErrOutsideRoot},
		{"a/../b", ErrOutsideRoot},
		{"out/../x", ErrOutsideRoot},
	}
	for _, test := range tests {
		got, err := Rel(test.path)
		if test.want == "" && (err != nil || got != test.path) {
			t.Errorf("Rel(%.40q) = %.40q, %v", test.path, got, err)
		}
		if test.want != "" && !errors.Is(err, test.want) {
			t.Errorf("Rel(%.40q): %v, want %s", test.path, err, test.want)
		}
	}
}

func FuzzRel(f *testing.F) {
	for _, seed := range []string{"a/b", "../a", "/a", "a//b", "a/", ".", "\xff", "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, unsafePath string) {
		got, err := Rel(unsafePath)
		clean := unsafePath != "" && unsafePath != "." && path.Clean(unsafePath) == unsafePath &&
			unsafePath[0] != '/' && unsafePath != ".." && !strings.HasPrefix(unsafePath, "../") &&
			!strings.Contains(unsafePath, "\x00") && len(unsafePath) <= MaximumPath
		for name := range strings.SplitSeq(unsafePath, "/") {
			clean = clean && len(name) <= MaximumName
		}
		if (err == nil) != clean {
			t.Fatalf("Rel(%q) = %v, clean is %v", unsafePath, err, clean)
		}
		if err == nil {
			if parent, name := split(got); join(parent, name) != unsafePath {
				t.Fatalf("split and join changed %q", unsafePath)
			}
		}
	})
}
