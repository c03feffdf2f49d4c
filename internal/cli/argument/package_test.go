package argument

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func TestPackage(t *testing.T) {
	for _, c := range []struct {
		s    string
		want sandbox.Package
		hint string // of the refusal
	}{
		{"apt:jq", sandbox.Package{Manager: "apt", Name: "jq"}, ""},
		{"apt:jq@1:1.6-2.1", sandbox.Package{Manager: "apt", Name: "jq", Version: "1:1.6-2.1"}, ""},
		{"npm:@scope/name", sandbox.Package{Manager: "npm", Name: "@scope/name"}, ""},
		{"npm:@scope/name@1.0.0", sandbox.Package{Manager: "npm", Name: "@scope/name", Version: "1.0.0"}, ""},
		{"go:example.com/cmd/x@v1.2.3", sandbox.Package{Manager: "go", Name: "example.com/cmd/x", Version: "v1.2.3"}, ""},
		{"jq", sandbox.Package{}, "MANAGER:NAME"},
		{"apt:", sandbox.Package{}, "MANAGER:NAME"},
		{":jq", sandbox.Package{}, "one of apt"},
		{"brew:jq", sandbox.Package{}, "one of apt"},
		{"apt:jq@", sandbox.Package{}, "behind @"},
		{"apt:-y", sandbox.Package{}, "as the name"},
		{"apt:jq;id", sandbox.Package{}, "as the name"},
		{"npm:left-pad@latest", sandbox.Package{}, "as the version"},
		{"npm:user/repository", sandbox.Package{}, "as the name"},
		{"", sandbox.Package{}, "MANAGER:NAME"},
	} {
		got, err := Package(c.s)
		if got != c.want || (err == nil) != (c.hint == "") || err != nil && !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%q: %+v, %v; want %+v, %q", c.s, got, err, c.want, c.hint)
		}
	}
	got, err := Packages([]string{"npm:b", "apt:jq", "npm:a@1.0.0"})
	want := []sandbox.Package{{Manager: "apt", Name: "jq"}, {Manager: "npm", Name: "a", Version: "1.0.0"}, {Manager: "npm", Name: "b"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Packages([]string{"apt:jq", "apt:jq@1.6"}); err == nil || !strings.Contains(err.Error(), "once") {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Packages(nil); err != nil || got == nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzPackage(f *testing.F) {
	for _, s := range []string{"apt:jq@1:1.6", "npm:@a/b@1.0.0", "go:a.b/c@v1.0.0", "x", "apt:@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Package(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Fatalf("%q: %q", s, err)
			}
			return
		}
		back := string(p.Manager) + ":" + p.Name
		if p.Version != "" {
			back += "@" + p.Version
		}
		if back != s {
			t.Fatalf("%q is read as %q", s, back)
		}
	})
}
