package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// named finds the hosts of sources of apt.
var named = regexp.MustCompile(`https?://([^/\s]+)`)

// setting is that of one manager, as this machine's own tools have it; "" where they
// have none.
func setting(m sandbox.PackageManager) string {
	switch m {
	case sandbox.ManagerApt:
		files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
		var hosts []string
		for _, path := range append(files, "/etc/apt/sources.list") {
			text, _ := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				if found := named.FindStringSubmatch(line); found != nil && !strings.HasPrefix(line, "#") {
					hosts = append(hosts, fmt.Sprintf("%q", found[1]+":443"))
				}
			}
		}
		if len(hosts) > 0 {
			return `{"manager":"apt","hosts":[` + strings.Join(hosts, ",") + `]}`
		}
	case sandbox.ManagerNpm, sandbox.ManagerGo:
		ask := map[sandbox.PackageManager][]string{"npm": {"npm", "config", "get", "registry"}, "go": {"go", "env", "GOPROXY"}}[m]
		out, _ := exec.Command(ask[0], ask[1:]...).Output()
		url, _, _ := strings.Cut(strings.TrimSpace(string(out)), ",")
		if strings.HasPrefix(url, "https://") {
			return fmt.Sprintf(`{"manager":%q,"mirror":%q}`, m, url)
		}
	}
	return ""
}

// registriesHere writes settings of the registries that this machine itself asks:
// where one's address is not public, it has to be pinned. It skips t where a registry
// is not within reach.
func registriesHere(t *testing.T, managers ...sandbox.PackageManager) string {
	t.Helper()
	var of []string
	for _, m := range managers {
		s := setting(m)
		if s == "" {
			t.Skipf("this machine's own %s names no registry", m)
		}
		of = append(of, s)
	}
	body := `{"v":1,"managers":[` + strings.Join(of, ",") + `]`
	r, err := recipe.DecodeRegistries([]byte(body + `}`))
	if err != nil {
		t.Fatal(err)
	}
	pins := map[string]string{}
	for _, m := range managers {
		reached := false
		for _, d := range r.Destinations(m) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", d.Host)
			cancel()
			if err != nil || len(found) == 0 {
				continue // it may be one that is asked only where another does not answer
			}
			dialer := net.Dialer{Timeout: 10 * time.Second}
			c, err := dialer.DialContext(t.Context(), "tcp", netip.AddrPortFrom(found[0].Unmap(), uint16(d.Port)).String())
			if err != nil {
				continue
			}
			c.Close()
			reached = true
			var prefixes []string
			for _, a := range found {
				if !policy.Public(a) {
					prefixes = append(prefixes, fmt.Sprintf("%q", netip.PrefixFrom(a.Unmap(), 32)))
				}
			}
			if len(prefixes) > 0 {
				pins[d.Host] = fmt.Sprintf(`{"host":%q,"prefixes":[%s]}`, d.Host, strings.Join(prefixes, ","))
			}
		}
		if !reached {
			t.Skipf("no registry of %s is within reach", m)
		}
	}
	path := filepath.Join(t.TempDir(), "registries.json")
	write(t, path, body+`,"pins":[`+strings.Join(slices.Collect(maps.Values(pins)), ",")+`]}`, 0o644)
	return path
}

// images are the images of the store, as image ls shows them.
func images(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(strings.Split(mustRun(t, "image", "ls").stdout, "\n"), func(line string) bool { return !strings.Contains(line, "@sha256:") })
}

// A program of a Go module is compiled in the build machine, its sources held to the
// checksum database.
func TestPackages_Go(t *testing.T) {
	from := registriesHere(t, sandbox.ManagerGo)
	mustRun(t, "image", "import", imagetest.Go(t, t.TempDir()))
	args := []string{"run", "--quiet", "--image", "go", "--registries", from, "--package"}
	// By its path: the PATH of a machine is that of its image, and this one's is short.
	if r := mustRun(t, append(args, "go:golang.org/x/example/hello", "--", "/usr/local/bin/hello", "you")...); !strings.Contains(r.stdout, "Hello, you!") {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
	r := run(t, append(args, "go:golang.org/x/example/no-such-command", "--", "true")...)
	if says := "go:golang.org/x/example/no-such-command could not be installed"; r.code != 125 || !strings.Contains(r.stderr, says) {
		t.Errorf("exit %d, %q; want 125 and %q", r.code, r.stderr, says)
	}
	if left := census(); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// A machine has the packages that were asked for, from the real registries: built
// once, for both drivers and for sessions, in a sandbox that reaches the registry
// alone. What cannot be installed is named and leaves nothing.
func TestPackages(t *testing.T) {
	managers := []sandbox.PackageManager{sandbox.ManagerApt, sandbox.ManagerGo}
	_, err := os.Stat(imagetest.NPM)
	npm := err == nil
	if npm {
		managers = append(managers, sandbox.ManagerNpm)
	} else {
		t.Log("no npm on this machine: that of a machine is not tested")
	}
	from := registriesHere(t, managers...)
	mustRun(t, "image", "import", imagetest.Debian(t, t.TempDir(), npm))
	with := func(packages ...string) []string {
		args := []string{"run", "--quiet", "--image", "debian", "--registries", from}
		for _, p := range packages {
			args = append(args, "--package", p)
		}
		return args
	}
	before := images(t)
	nothing := func(what string) {
		t.Helper()
		if left := census(); len(left) > 0 {
			t.Errorf("%s left %q", what, left)
		}
	}

	r := mustRun(t, append(with("apt:hello"), "--json", filepath.Join(t.TempDir(), "record.json"), "--", "hello")...)
	if !strings.Contains(r.stdout+r.stderr, "Hello, world!") {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
	nothing("a build")
	once := images(t)
	if len(once) != len(before)+1 {
		t.Errorf("%d images became %d:\n%s", len(before), len(once), strings.Join(once, "\n"))
	}

	// From now on no registry is asked: by these settings none is where it is said to be.
	nowhere, other := filepath.Join(t.TempDir(), "registries.json"), filepath.Join(t.TempDir(), "registries.json")
	apt := setting(sandbox.ManagerApt)
	settings, err := recipe.DecodeRegistries([]byte(`{"v":1,"managers":[` + apt + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	var pins []string
	for _, d := range settings.Destinations(sandbox.ManagerApt) {
		pins = append(pins, fmt.Sprintf(`{"host":%q,"prefixes":["10.255.255.255/32"]}`, d.Host))
	}
	write(t, nowhere, `{"v":1,"managers":[`+apt+`],"pins":[`+strings.Join(pins, ",")+`]}`, 0o644)
	write(t, other, `{"v":1,"managers":[{"manager":"apt","mirror":"https://mirror.invalid"}]}`, 0o644)
	cached := []string{"run", "--quiet", "--image", "debian", "--registries", nowhere, "--package", "apt:hello"}
	for _, provider := range []string{"native", "native:runc"} {
		r := mustRun(t, append(cached, "--provider", provider, "--json", "-", "--", "hello")...)
		var record struct {
			Profile sandbox.Profile `json:"profile"`
		}
		if err := json.Unmarshal([]byte(r.stdout), &record); err != nil || len(record.Profile.Packages) != 1 || record.Profile.Packages[0].Name != "hello" {
			t.Errorf("%s: the record names %v, %v", provider, record.Profile.Packages, err)
		}
		if !strings.Contains(r.stderr, "Hello, world!") {
			t.Errorf("%s: %q", provider, r.stderr)
		}
	}
	// A session goes on with the settings that it was started with, and with no others.
	id := strings.TrimSpace(mustRun(t, "session", "start", "--quiet", "--keep", "--disk", "64MiB", "--image", "debian", "--registries", nowhere, "--package", "apt:hello").stdout)
	mustRun(t, "session", "pause", id, "--quiet")
	if err := os.Rename(nowhere, nowhere+".away"); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "session", "resume", id, "--quiet"); r.code == 0 || !strings.Contains(r.stderr, nowhere) {
		t.Errorf("exit %d, %q", r.code, r.stderr)
	}
	if err := os.Rename(nowhere+".away", nowhere); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "session", "resume", id, "--quiet")
	if r := mustRun(t, "session", "exec", id, "--", "hello"); !strings.Contains(r.stdout, "Hello, world!") {
		t.Errorf("%q", r.stdout)
	}
	mustRun(t, "session", "rm", id)
	if now := images(t); !slices.Equal(now, once) {
		t.Errorf("images became\n%s", strings.Join(now, "\n"))
	}

	// A package with scripts of its own is installed without them; the path of the
	// machine has its command, or its files.
	lacking, refused := "registries name", 2
	if npm {
		if r := mustRun(t, append(with("npm:is-number@7.0.0"), "--", "cat", "/usr/local/lib/node_modules/is-number/package.json")...); !strings.Contains(r.stdout, `"version": "7.0.0"`) {
			t.Errorf("%q", r.stdout)
		}
		lacking, refused = "npm:is-number@99.99.99 could not be installed", 125
	}

	once = images(t)
	for _, c := range []struct {
		packages []string
		code     int
		says     []string
	}{
		{[]string{"apt:hello", "apt:no-such-package"}, 125, []string{"checkfu: apt:no-such-package could not be installed", "check the name"}},
		{[]string{"npm:is-number@99.99.99"}, refused, []string{lacking}},
		{[]string{"go:golang.org/x/example/hello"}, 125, []string{"the image has no go; add apt:golang"}},
		{[]string{"apt:hello+"}, 125, []string{"apt:hello+ could not be installed", "no packages found matching hello+"}}, // apt takes it for hello
		{[]string{"apt:hello@2.10-"}, 2, []string{"--package", "one Debian version"}},                                     // and that for its removal
		{[]string{"apt:--force-yes"}, 2, []string{"--package", "Debian package"}},
		{[]string{"npm:is-number@latest"}, 2, []string{"--package", "one whole version"}},
		{[]string{"brew:jq"}, 2, []string{"--package", "apt, go, npm, pip"}},
		{[]string{"apt:jq", "apt:jq@1.6"}, 2, []string{"each package once"}},
	} {
		r := run(t, append(with(c.packages...), "--", "true")...)
		for _, says := range c.says {
			if r.code != c.code || !strings.Contains(r.stderr, says) {
				t.Errorf("%v: exit %d, %q; want %d and %q", c.packages, r.code, r.stderr, c.code, says)
			}
		}
		nothing(strings.Join(c.packages, " "))
	}
	if now := images(t); !slices.Equal(now, once) {
		t.Errorf("what could not be installed left\n%s", strings.Join(now, "\n"))
	}

	// What one registry handed out is not taken for another's. What the guard refused is
	// said, with what to do; the settings are read strictly.
	r = run(t, "run", "--quiet", "--image", "debian", "--registries", other, "--package", "apt:hello", "--", "true")
	if r.code != 125 || !strings.Contains(r.stderr, `the guard of the build refused "mirror.invalid:443" (resolve_failed)`) {
		t.Errorf("exit %d, %q", r.code, r.stderr)
	}
	for text, says := range map[string]string{
		`{"v":1,"pins":[{"host":"a.test","prefixes":["127.0.0.0/8"]}]}`: "pins[0]",
		`{"v":1`:   "--registries",
		`{"v":1} `: "registries name", // none, so nothing is asked of anybody
	} {
		path := filepath.Join(t.TempDir(), "registries.json")
		write(t, path, text, 0o644)
		r := run(t, "run", "--quiet", "--image", "debian", "--registries", path, "--package", "apt:hello", "--", "hello")
		if r.code != 2 || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: exit %d, %q", text, r.code, r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(state, "builds")); err != nil {
		t.Error("builds have another place than is looked into here: ", err)
	}
}
