package recipe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// What comes from another registry has another origin, and no other setting has.
func TestOrigin(t *testing.T) {
	packages := []sandbox.Package{pkg("npm", "cowsay", ""), pkg("apt", "jq", "")}
	origin := func(text, authorities string, packages []sandbox.Package) string {
		t.Helper()
		r, err := recipe.DecodeRegistries([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Authorities = []byte(authorities)
		got, err := r.Origin(packages)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const mirror = `{"v":1,"managers":[{"manager":"npm","mirror":"https://npm.corp.test/"}]}`
	for _, text := range []string{
		`{"v":1}`, `{"v":1,"managers":[{"manager":"pip","mirror":"https://pip.corp.test/"}]}`,
		`{"v":1,"managers":[{"manager":"pip","mirror":"https://pip.corp.test/"}],"pins":[{"host":"pip.corp.test","prefixes":["10.0.0.0/8"]}]}`,
	} {
		if got := origin(text, "a", packages); got != "" {
			t.Errorf("%s is %q, as if it were another registry", text, got)
		}
	}
	seen := map[string]string{"": "no setting at all"}
	for _, c := range []struct{ text, authorities string }{
		{mirror, "a"},
		{`{"v":1,"managers":[{"manager":"npm","mirror":"https://npm.corp.test/r/"}]}`, "a"},
		{`{"v":1,"managers":[{"manager":"npm","mirror":"https://npm.corp.test/","hosts":["cdn.corp.test:443"]}]}`, "a"},
		{`{"v":1,"managers":[{"manager":"apt","hosts":["a.corp.test:443","b.corp.test:443"]}]}`, "a"},
		{`{"v":1,"managers":[{"manager":"apt","hosts":["b.corp.test:443","a.corp.test:443"]}]}`, "a"},
		{`{"v":1,"managers":[{"manager":"apt","mirror":"https://npm.corp.test/"}]}`, "a"},
		{`{"v":1,"ca_bundle":"/a"}`, "a"},
		{`{"v":1,"ca_bundle":"/a"}`, "b"},
	} {
		got := origin(c.text, c.authorities, packages)
		if other, twice := seen[got]; twice {
			t.Errorf("%s, %s has the origin of %s", c.text, c.authorities, other)
		}
		seen[got] = c.text
	}
	pinned := strings.Replace(mirror, `]}`, `],"pins":[{"host":"npm.corp.test","prefixes":["10.0.0.0/8"]}]}`, 1)
	if origin(mirror, "a", packages) != origin(pinned, "a", packages) {
		t.Error("where a registry lives is a part of it")
	}
	turned := slices.Clone(packages)
	slices.Reverse(turned)
	if origin(mirror, "a", packages) != origin(mirror, "b", turned) {
		t.Error("the host's own certificates, or the order of packages, is a part of it")
	}
	if origin(`{"v":1,"ca_bundle":"/a"}`, "a", packages) != origin(`{"v":1,"ca_bundle":"/b"}`, "a", packages) {
		t.Error("where certificates lie is a part of it")
	}
}
