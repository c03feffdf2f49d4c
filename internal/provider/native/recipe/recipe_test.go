package recipe_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// trusting are settings of every manager that is offered.
var trusting = func() recipe.Registries {
	r, err := recipe.DecodeRegistries([]byte(`{"v":1,"managers":[{"manager":"apt","hosts":["deb.corp.test:443","more.corp.test:443"]},
		{"manager":"go","mirror":"https://go.corp.test"},{"manager":"npm","mirror":"https://npm.corp.test/"},{"manager":"pip","mirror":"https://pip.corp.test/simple/"}]}`))
	if err != nil {
		panic(err)
	}
	r.Authorities = []byte("certificates\n")
	return r
}()

func pkg(manager sandbox.PackageManager, name, version string) sandbox.Package {
	return sandbox.Package{Manager: manager, Name: name, Version: version}
}

// What a build machine is given: each package is one whole argument of one
// command, apt's come first, and everything that is said is well formed.
func TestFor(t *testing.T) {
	packages := []sandbox.Package{
		pkg("apt", "hello", "2.10-3"), pkg("apt", "jq", ""), pkg("go", "example.com/cmd/tool", ""), pkg("go", "example.com/x", "v1.2.3"), pkg("npm", "@a/b", "1.0.0"), pkg("npm", "cowsay", ""),
	}
	got, err := recipe.For(packages, trusting)
	if err != nil {
		t.Fatal(err)
	}
	var last []string
	for _, s := range got.Steps {
		if len(s.Argv) == 0 || s.Dir != "/" {
			t.Errorf("step %+v", s)
		}
		if s.Packages != nil {
			if s.Missing == "" {
				t.Errorf("%v says nothing of an image without its tool", s.Argv)
			}
			last = append(last, s.Argv[len(s.Argv)-1])
		}
		if i := slices.Index(s.Argv, "--"); s.Packages != nil && i != len(s.Argv)-1-len(s.Packages) {
			t.Errorf("%v: its packages do not stand behind --", s.Argv)
		}
		if slices.ContainsFunc(s.Argv, func(a string) bool { return a == "sh" || a == "-c" || a == "bash" }) {
			t.Errorf("a shell in %v", s.Argv)
		}
	}
	want := []string{"hello=2.10-3", "jq", "jq", "jq", "example.com/cmd/tool@latest", "example.com/x@v1.2.3", "@a/b@1.0.0", "cowsay"}
	if !slices.Equal(last, want) {
		t.Errorf("packages as arguments: %q, want %q", last, want)
	}
	if len(got.Destinations) < 4 || !slices.IsSortedFunc(got.Destinations, func(a, b sandbox.Destination) int { return strings.Compare(a.Host, b.Host) }) {
		t.Errorf("destinations %v", got.Destinations)
	}
	for _, d := range got.Destinations {
		if d.Validate() != nil || d.Mode != policy.ModeTLS {
			t.Errorf("destination %+v", d)
		}
	}
	if _, err := policy.Compile(got.Destinations, nil); err != nil {
		t.Error(err)
	}
	for _, f := range got.Files {
		if path.Clean(f.Path) != f.Path || !path.IsAbs(f.Path) || f.Mode&^0o777 != 0 || len(f.Content) == 0 {
			t.Errorf("file %+v", f)
		}
		if !slices.Contains(got.Discard, f.Path) {
			t.Errorf("%s would be in the image when a package touches it", f.Path)
		}
	}
	for _, d := range got.Discard {
		if path.Clean(d) != d || !path.IsAbs(d) {
			t.Errorf("discard %q", d)
		}
	}
	names := map[string]bool{}
	for _, e := range got.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || names[name] {
			t.Errorf("environment %q", e)
		}
		names[name] = true
	}
}

// apt takes "tree+" for "tree" and "tree=1-" for its removal, and ends well: no
// version ends so, and dpkg, which knows whole names alone, has the last word.
func TestForHoldsAptToWholeNames(t *testing.T) {
	packages := []sandbox.Package{pkg("apt", "tree+", ""), pkg("apt", "g++", "4:12.2.0-3")}
	got, err := recipe.For(packages, trusting)
	if err != nil {
		t.Fatal(err)
	}
	last := got.Steps[len(got.Steps)-1]
	if want := []string{"dpkg-query", `--showformat=\n`, "--show", "--", "tree+", "g++"}; !slices.Equal(last.Argv, want) || !slices.Equal(last.Packages, packages) {
		t.Errorf("the last step is %+v, want %q", last, want)
	}
}

// What one package brings is run by no step of the next: all of pip's are installed by
// the last command of Python's, and the steps' own commands come before those that
// packages bring.
func TestForRunsNoPackageOfAnEarlierStep(t *testing.T) {
	got, err := recipe.For([]sandbox.Package{pkg("npm", "cowsay", ""), pkg("pip", "evil", ""), pkg("pip", "six", "1.0")}, trusting)
	if err != nil {
		t.Fatal(err)
	}
	var installs []int
	for i, s := range got.Steps {
		if s.Argv[0] == "pip3" && s.Argv[1] == "install" {
			installs = append(installs, i)
		} else if s.Argv[0] == "pip3" && (s.Argv[1] != "download" || len(s.Packages) != 1 || !slices.Contains(s.Argv, "--no-deps") || !slices.Contains(s.Argv, "--only-binary=:all:")) {
			t.Errorf("%q", s.Argv)
		}
	}
	last := got.Steps[len(got.Steps)-1].Argv
	if !slices.Equal(installs, []int{len(got.Steps) - 1}) || !slices.Equal(last[len(last)-3:], []string{"--", "evil", "six==1.0"}) || !slices.Contains(last, "--only-binary=:all:") {
		t.Errorf("pip installs in the steps %v, the last is %q", installs, last)
	}
	at := slices.IndexFunc(got.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") })
	dirs := strings.Split(strings.TrimPrefix(got.Env[at], "PATH="), ":")
	if want := []string{"/usr/local/sbin", "/usr/local/bin"}; !slices.Equal(dirs[len(dirs)-2:], want) {
		t.Errorf("the steps look in %q, want %q last", dirs, want)
	}
}

// What is reached, pinned and said is of the managers that are asked for alone.
func TestForIsOfWhatIsAsked(t *testing.T) {
	r, err := recipe.DecodeRegistries([]byte(`{"v":1,"managers":[{"manager":"npm","mirror":"https://npm.corp.test/r/"},{"manager":"go","mirror":"https://go.corp.test"}],
		"pins":[{"host":"npm.corp.test","prefixes":["10.1.0.0/16"]},{"host":"go.corp.test","prefixes":["10.2.0.0/16"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Authorities = trusting.Authorities
	got, err := recipe.For([]sandbox.Package{pkg("npm", "cowsay", "")}, r)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Destinations) != 1 || got.Destinations[0].Host != "npm.corp.test" || len(got.Pins) != 1 || got.Pins[0].Host != "npm.corp.test" {
		t.Errorf("destinations %v, pins %v", got.Destinations, got.Pins)
	}
	if !slices.Contains(got.Steps[1].Argv, "--registry=https://npm.corp.test/r/") {
		t.Errorf("%v", got.Steps[1].Argv)
	}
}

func TestForRefuses(t *testing.T) {
	many := make([]sandbox.Package, sandbox.MaxPackages+1)
	for _, c := range []struct {
		packages []sandbox.Package
		r        recipe.Registries
		field    string
	}{
		{nil, trusting, "packages"},
		{many, trusting, "packages"},
		{[]sandbox.Package{pkg("apt", "jq", "")}, recipe.Registries{}, "authorities"},
		{[]sandbox.Package{pkg("apt", "jq", ""), pkg("apt", "-y", "")}, trusting, "packages[1].name"},
		{[]sandbox.Package{pkg("apt", "jq", "1"), pkg("apt", "jq", "2")}, trusting, "packages[1].name"},
		{[]sandbox.Package{pkg("npm", "a", "latest")}, trusting, "packages[0].version"},
		{[]sandbox.Package{pkg("brew", "jq", "")}, trusting, "packages[0].manager"},
		{[]sandbox.Package{pkg("npm", "a", "")}, recipe.Registries{Authorities: trusting.Authorities}, "packages[0].manager"},
	} {
		_, err := recipe.For(c.packages, c.r)
		if bad, _ := errors.AsType[*sandbox.Invalid](err); bad == nil || bad.Field != c.field {
			t.Errorf("%v: %v, want a refusal of %q", c.packages[:min(2, len(c.packages))], err, c.field)
		}
	}
}

func TestManagers(t *testing.T) {
	all := recipe.Managers()
	if len(all) == 0 || !slices.IsSorted(all) || slices.ContainsFunc(all, func(m sandbox.PackageManager) bool { return !m.Valid() }) {
		t.Errorf("%v", all)
	}
}

func TestDecodeRegistries(t *testing.T) {
	r, err := recipe.DecodeRegistries([]byte(`{"v":1,
		"managers":[{"manager":"apt","hosts":["b.test:443","a.test:8443"]},{"manager":"pip","mirror":"https://pip.test:8443/simple/","hosts":["files.test:443"]}],
		"pins":[{"host":"pip.test","prefixes":["10.1.0.0/16","fd00:1::/64"]}],"ca_bundle":"/etc/ca.pem"}`))
	if err != nil {
		t.Fatal(err)
	}
	tls := func(host string, port int64) sandbox.Destination {
		return sandbox.Destination{Host: host, Port: port, Mode: policy.ModeTLS}
	}
	if got := r.Destinations("apt"); !slices.Equal(got, []sandbox.Destination{tls("a.test", 8443), tls("b.test", 443)}) {
		t.Errorf("apt: %v", got)
	}
	if got := r.Destinations("pip"); !slices.Equal(got, []sandbox.Destination{tls("files.test", 443), tls("pip.test", 8443)}) {
		t.Errorf("pip: %v", got)
	}
	if got := r.Destinations("npm"); len(got) != 0 {
		t.Errorf("npm: %v", got)
	}
	if len(r.Pins) != 1 || r.Pins[0].Prefixes[0] != netip.MustParsePrefix("10.1.0.0/16") || r.CABundle != "/etc/ca.pem" {
		t.Errorf("%+v", r)
	}
	for text, field := range map[string]string{
		`{"v":2}`: "v",
		`{"v":1,"managers":[{"manager":"brew"}]}`:                                             "managers[0].manager",
		`{"v":1,"managers":[{"manager":"npm"}]}`:                                              "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"apt"}]}`:                                              "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","hosts":["a.test:443"]}]}`:                       "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://a.test/"},{"manager":"npm"}]}`: "managers[1].manager",
		`{"v":1,"managers":[{"manager":"npm","mirror":"http://a.test/"}]}`:                    "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://10.0.0.1/"}]}`:                 "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://u:p@a.test/"}]}`:               "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://a.test/x?y"}]}`:                "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://a.test/#x"}]}`:                 "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://a.test/,direct"}]}`:            "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://A.test/"}]}`:                   "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","mirror":"https://a.test/../x"}]}`:               "managers[0].mirror",
		`{"v":1,"managers":[{"manager":"npm","hosts":["a.test"]}]}`:                           "managers[0].hosts[0]",
		`{"v":1,"managers":[{"manager":"npm","hosts":["*.test:443"]}]}`:                       "managers[0].hosts[0]",
		`{"v":1,"managers":[{"manager":"npm","hosts":["A.test:443"]}]}`:                       "managers[0].hosts[0]",
		`{"v":1,"managers":[{"manager":"npm","hosts":["10.0.0.1:443"]}]}`:                     "managers[0].hosts[0]",
		`{"v":1,"pins":[{"host":"a.test","prefixes":["10.0.0.0/8"]}]}`:                        "pins[0].host",
		pinning(`"10.0.0.0/8"`, `"10.0.0.0/8"`):                                               "pins[1].host",
		pinning(`"127.0.0.0/8"`):                                                              "pins[0].prefixes[0]",
		pinning(`"169.254.169.254/32"`):                                                       "pins[0].prefixes[0]",
		pinning(`"10.0.0.1/8"`):                                                               "pins[0].prefixes[0]",
		pinning(`"10.0.0.1"`):                                                                 "pins[0].prefixes[0]",
		pinning(``):                                                                           "pins[0].prefixes",
		`{"v":1,"ca_bundle":"ca.pem"}`:                                                        "ca_bundle",
		`{"v":1,"ca_bundle":"/etc/../ca.pem"}`:                                                "ca_bundle",
		`{"v":1,"ca_bundle":"` + strings.Repeat("a", recipe.MaxRegistriesBytes) + `"}`:        "registries",
	} {
		_, err := recipe.DecodeRegistries([]byte(text))
		if bad, _ := errors.AsType[*sandbox.Invalid](err); bad == nil || bad.Field != field {
			t.Errorf("%.120s: %v, want a refusal of %q", text, err, field)
		}
	}
	for _, text := range []string{``, `{}`, `{"v":1,"x":1}`, `{"v":1} x`, `{"v":1,"v":1}`, `{"v":null}`} {
		if _, err := recipe.DecodeRegistries([]byte(text)); err == nil {
			t.Errorf("%s is let through", text)
		}
	}
}

// pinning is settings that pin one host so often.
func pinning(prefixes ...string) string {
	var pins []string
	for _, p := range prefixes {
		pins = append(pins, `{"host":"a.test","prefixes":[`+p+`]}`)
	}
	return `{"v":1,"managers":[{"manager":"npm","mirror":"https://a.test/"}],"pins":[` + strings.Join(pins, ",") + `]}`
}

// FuzzDecodeRegistries holds whatever is let through to what a guard starts on.
func FuzzDecodeRegistries(f *testing.F) {
	f.Add([]byte(`{"v":1}`))
	f.Add([]byte(pinning(`"10.0.0.0/8","fd00::/64"`)))
	f.Add([]byte(`{"v":1,"managers":[{"manager":"apt","hosts":["a.test:443"],"mirror":"https://b.test:1/x"}],"ca_bundle":"/a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := recipe.DecodeRegistries(data)
		if err != nil {
			return
		}
		r.Authorities = trusting.Authorities
		for _, m := range recipe.Managers() {
			name := map[sandbox.PackageManager]string{"go": "example.com/x"}[m]
			if name == "" {
				name = "ab"
			}
			got, err := recipe.For([]sandbox.Package{pkg(m, name, "")}, r)
			if named := len(r.Destinations(m)) > 0; named != (err == nil) {
				t.Fatalf("%s: %v, and it is named: %v", m, err, named)
			} else if !named {
				continue
			}
			list, err := policy.Compile(got.Destinations, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policy.CompilePins(got.Pins, list); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An image is found again by Revision, so a recipe that does something else has to
// have another. Whoever sees this fail raises Revision and writes both down here.
func TestRevisionIsOfTheRecipesAsTheyAre(t *testing.T) {
	const revision, digest = "5", "d7b7e8a499d611b0"
	r, err := recipe.For([]sandbox.Package{
		pkg("apt", "hello", "1-1"), pkg("apt", "jq", ""), pkg("go", "example.com/x", ""), pkg("npm", "cowsay", "1.0.0"), pkg("pip", "six", "1.0"),
	}, trusting)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%#v", r)))[:16]
	if recipe.Revision != revision || got != digest {
		t.Errorf("revision %q is %s, want %q and %s", recipe.Revision, got, revision, digest)
	}
}
