package recipe_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		manager       sandbox.PackageManager
		name, version string
		field         string // of the refusal
	}{
		{"apt", "jq", "", ""},
		{"apt", "g++", "4:12.2.0-3", ""},
		{"apt", "libc6", "2.36-9+deb12u10~x", ""},
		{"apt", "jq-", "", "name"},      // removes it
		{"apt", "jq/sid", "", "name"},   // a release
		{"apt", "jq:arm64", "", "name"}, // another architecture
		{"apt", "jq=1", "", "name"},
		{"apt", "./jq.deb", "", "name"},
		{"apt", "/tmp/jq.deb", "", "name"},
		{"apt", "jq.*", "", "name"},
		{"apt", "?installed", "", "name"},
		{"apt", "~i", "", "name"},
		{"apt", "^jq", "", "name"},
		{"apt", "web-server^", "", "name"}, // a task
		{"apt", "jq", "1.*", "version"},
		{"apt", "jq", "1", ""},
		{"apt", "jq", "1.6-", "version"}, // removes it
		{"apt", "jq", "1.6+", "version"}, // another version
		{"apt", "jq", "", ""},
		{"npm", "is-number", "7.0.0", ""},
		{"npm", "@scope/name", "1.0.0-rc.1+b", ""},
		{"npm", "is-number", "^7.0.0", "version"},
		{"npm", "is-number", "latest", "version"},
		{"npm", "is-number", "npm:other@1.0.0", "version"},
		{"npm", "a@npm:b", "", "name"},
		{"npm", "user/repository", "", "name"},
		{"npm", "github:user/repository", "", "name"},
		{"npm", "git+ssh://host/x", "", "name"},
		{"npm", "a.tgz", "", "name"},
		{"npm", "@a/../b", "", "name"},
		{"npm", "..", "", "name"},
		{"npm", ".", "", "name"},
		{"npm", "~root", "", "name"},
		{"npm", "Upper", "", "name"},
		{"go", "golang.org/x/tools/cmd/goimports", "v0.24.0", ""},
		{"go", "example.com/m/v2", "v2.0.0-20240101000000-abcdefabcdef", ""},
		{"go", "example.com/m", "latest", "version"},
		{"go", "example.com/m", "main", "version"},
		{"go", "example.com/m", "v1", "version"},
		{"go", "example.com", "", "name"}, // no command is there
		{"go", "cmd/vet", "", "name"},
		{"go", "./x.y/z", "", "name"},
		{"go", "example.com/...", "", "name"},
		{"go", "example.com/../x", "", "name"},
		{"go", "example.com//x", "", "name"},
		{"go", "example.com/x@v1.0.0", "", "name"},
		{"go", "example.com/x.go", "", "name"},
		{"go", "https://example.com/x", "", "name"},
		{"pip", "requests", "2.32.3", ""},
		{"pip", "zope.interface", "1!6.0+local.1", ""},
		{"pip", "requests[socks]", "", "name"},
		{"pip", "a.whl", "", "name"},
		{"pip", "a.TAR.GZ", "", "name"},
		{"pip", "git+https://host/x", "", "name"},
		{"pip", "a@https://host/x", "", "name"},
		{"pip", "requests", "2.*", "version"},
		{"pip", "requests", ">2", "version"},
		{"gem", "rake", "13.2.1", ""},
		{"gem", "rake.gem", "", "name"},
		{"gem", "rake:13", "", "name"},
		{"gem", "rake", "~>13", "version"},
		{"cargo", "ripgrep", "14.1.0", ""},
		{"cargo", "ripgrep", "14", "version"},
		{"cargo", "ripgrep", "=14.1.0", "version"},
		{"cargo", "rip.grep", "", "name"},
		{"cargo", strings.Repeat("a", 65), "", "name"},
		{"brew", "jq", "", "manager"},
	} {
		err := recipe.Check(sandbox.Package{Manager: c.manager, Name: c.name, Version: c.version})
		bad, _ := errors.AsType[*sandbox.Invalid](err)
		if c.field == "" && err != nil || c.field != "" && (bad == nil || bad.Field != c.field || bad.Expected == "" || bad.Got == "") {
			t.Errorf("%s:%s@%s: %v, want a refusal of %q", c.manager, c.name, c.version, err, c.field)
		}
	}
	for _, name := range []string{"", "-y", "--force", "a b", "a\tb", "a\nb", "a;b", "a|b", "a&b", "$(a)", "`a`", "a'b", `a"b`, `a\b`, "a*", "a?", "a>b", "a<b", "{a,b}", "a\x00b", "ä", "a%2fb", "a#b", "a!b"} {
		for _, m := range []sandbox.PackageManager{"apt", "cargo", "gem", "go", "npm", "pip"} {
			for _, p := range []sandbox.Package{{Manager: m, Name: name}, {Manager: m, Name: "example.com/" + name}, {Manager: m, Name: "ab", Version: name}} {
				if p.Version == "" && strings.HasPrefix(p.Name, "example.com/") && m != "go" {
					continue
				}
				if recipe.Check(p) == nil && p != (sandbox.Package{Manager: m, Name: "ab"}) {
					t.Errorf("%+v is let through", p)
				}
			}
		}
	}
}

// FuzzCheck holds what is let through to what no tool can read in two ways: it is
// one argument of visible bytes, no option, no path, no address, no file.
func FuzzCheck(f *testing.F) {
	for _, c := range [][3]string{{"apt", "g++", "4:1-2~a"}, {"npm", "@a/b", "1.0.0"}, {"go", "a.b/c", "v1.2.3"}, {"pip", "A.b-c_d", "1!2+x"}, {"gem", "a", "1.b"}, {"cargo", "a", "1.0.0-a"}} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, manager, name, version string) {
		p := sandbox.Package{Manager: sandbox.PackageManager(manager), Name: name, Version: version}
		if recipe.Check(p) != nil {
			return
		}
		for _, word := range []string{name, version} {
			if strings.HasPrefix(word, "-") || strings.HasPrefix(word, ".") || strings.HasPrefix(word, "/") || strings.Contains(word, "..") && strings.Contains(word, "/") ||
				strings.Contains(word, "://") || strings.ContainsAny(word, " \t\r\n\v\f\x00\"'`\\$&|;<>(){}[]*?#%^=,") {
				t.Fatalf("%q of %+v", word, p)
			}
			if p.Manager == sandbox.ManagerApt && (strings.HasSuffix(word, "-") || word == version && strings.HasSuffix(word, "+")) {
				t.Fatalf("apt would do something else: %+v", p)
			}
			for i := range len(word) {
				if word[i] <= ' ' || word[i] > '~' {
					t.Fatalf("%q of %+v", word, p)
				}
			}
		}
		if profile := goodProfile(p); profile.Validate() != nil {
			t.Fatalf("no profile can name it: %+v: %v", p, profile.Validate())
		}
	})
}

func goodProfile(p sandbox.Package) sandbox.Profile {
	return sandbox.Profile{
		ProfileID: "p", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: "a@sha256:" + strings.Repeat("0", 64), Packages: []sandbox.Package{p},
		NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, RetentionMode: sandbox.RetentionEphemeralZDR,
		ResourceLimits: sandbox.Resources{CPUMillis: 1, MemoryBytes: 1, DiskBytes: 1, MaxProcesses: 1, MaxDurationSeconds: 1},
	}
}
