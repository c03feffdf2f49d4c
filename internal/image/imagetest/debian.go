package imagetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Debian writes dir/debian.tar, an archive of the essential packages of this machine's
// own Debian with apt, as dpkg knows them here, and of nothing else that is installed
// (some 130 MB, without documents), but for the packages that are named, with what they
// depend on. It names no sources. node adds this machine's Node.js and npm, as Node does.
//
// It skips t where this is no Debian, or what is asked for is not installed.
func Debian(t testing.TB, dir string, node bool, packages ...string) string {
	t.Helper()
	if _, err := os.Stat("/usr/share/keyrings/debian-archive-keyring.gpg"); err != nil {
		t.Skip("no Debian with its keys: ", err)
	}
	w := newWriter(t)
	d := debian{placing: newPlacing(w)}
	for _, name := range []string{"bin", "sbin", "lib32", "libx32"} {
		if target, err := os.Readlink("/" + name); err == nil {
			w.link(name, target)
			d.there[name] = true
		}
	}
	w.dir("usr", 0o755, 0)
	w.dir("usr/bin", 0o755, 0)
	chosen := essential(t, packages)
	for path := range strings.Lines(output(t, "dpkg-query", append([]string{"-L"}, chosen...)...)) {
		if path = strings.TrimSpace(path); strings.HasPrefix(path, "/") && path != "/." {
			d.take(path)
		}
	}
	d.state(chosen)
	for _, name := range []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/debconf.conf"} {
		d.take(name)
	}
	d.take("/etc/alternatives/awk")
	d.take("/usr/bin/awk")
	for _, name := range []string{"/home", "/mnt", "/mnt/session", "/mnt/session/outputs", "/workspace", "/var/lib/apt", "/var/lib/apt/lists", "/var/cache/apt", "/var/log"} {
		d.dir(name)
	}
	if node {
		addNode(w)
		w.link("usr/bin/npm", NPM)
	}
	path := filepath.Join(dir, "debian.tar")
	if err := os.WriteFile(path, save(t, "debian", w.bytes()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

var dependency = regexp.MustCompile(`[a-z0-9][a-z0-9+.-]+`)

// essential are the packages without which dpkg and apt do not work here, and more,
// and what those depend on, as dpkg-query names them.
func essential(t testing.TB, more []string) []string {
	type installed struct{ name, depends string }
	all := map[string]installed{}
	wanted := append([]string{"apt", "debconf", "debian-archive-keyring"}, more...)
	const form = "${Package}|${binary:Package}|${Essential}|${Pre-Depends}, ${Depends}|${Provides}|${db:Status-Abbrev}\n"
	for line := range strings.Lines(output(t, "dpkg-query", "-W", "-f", form)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		// Alternatives are told apart by the same sign as fields: what is between the
		// first three and the last two is all dependencies.
		if len(f) < 6 || !strings.HasPrefix(f[len(f)-1], "ii") {
			continue
		}
		one := installed{f[1], strings.Join(f[3:len(f)-2], "|")}
		all[f[0]] = one
		for _, virtual := range strings.Split(f[len(f)-2], ",") {
			if name := dependency.FindString(virtual); name != "" && all[name].name == "" {
				all[name] = one
			}
		}
		if f[2] == "yes" {
			wanted = append(wanted, f[0])
		}
	}
	for _, name := range more {
		if all[name].name == "" {
			t.Skipf("the Debian package %s is not installed", name)
		}
	}
	var chosen []string
	for i := 0; i < len(wanted); i++ {
		one, there := all[wanted[i]]
		if !there || slices.Contains(chosen, one.name) {
			continue
		}
		chosen = append(chosen, one.name)
		for _, clause := range strings.Split(one.depends, ",") {
			for _, choice := range strings.Split(clause, "|") {
				if name := dependency.FindString(choice); all[name].name != "" {
					wanted = append(wanted, name)
					break
				}
			}
		}
	}
	return chosen
}

// debian puts what lies on this machine into an archive as it is.
type debian struct{ placing }

// unread are what no program reads.
var unread = regexp.MustCompile(`^/usr/share/(doc|man|info|locale|lintian|bug|i18n)/`)

func (d debian) take(path string) {
	d.w.t.Helper()
	if unread.MatchString(path) {
		return
	}
	// Where / has links to its parts in /usr, dpkg still knows the old places.
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return // diverted, or removed by whoever made this machine
	}
	path = filepath.Join(parent, filepath.Base(path))
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		d.w.t.Fatal(err)
	case info.IsDir():
		d.dir(path)
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err := os.Readlink(path); err == nil && d.make(path) {
			d.w.link(path[1:], target)
		}
	case info.Mode().IsRegular() && d.make(path):
		content, err := os.ReadFile(path)
		if err != nil {
			d.w.t.Fatal(err)
		}
		d.w.file(path[1:], int64(info.Mode().Perm()), content)
	}
}

func (d debian) dir(path string) {
	if path != "/" && d.make(path) {
		mode := int64(0o755)
		if path == "/tmp" || path == "/var/tmp" {
			mode = 0o1777
		}
		d.w.dir(path[1:], mode, 0)
	}
}

// state is what dpkg knows of those packages.
func (d debian) state(chosen []string) {
	status, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		d.w.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range chosen {
		plain, _, _ := strings.Cut(name, ":")
		names[plain] = true
		for _, base := range []string{name, plain} {
			found, _ := filepath.Glob("/var/lib/dpkg/info/" + base + ".*")
			for _, path := range found {
				if rest := strings.TrimPrefix(filepath.Base(path), base+"."); !strings.Contains(rest, ".") {
					d.take(path)
				}
			}
		}
	}
	var kept bytes.Buffer
	for paragraph := range bytes.SplitSeq(status, []byte("\n\n")) {
		line, _, _ := bytes.Cut(paragraph, []byte("\n"))
		if names[string(bytes.TrimPrefix(line, []byte("Package: ")))] {
			kept.Write(paragraph)
			kept.WriteString("\n\n")
		}
	}
	for _, name := range []string{"/var/lib/dpkg/updates", "/var/lib/dpkg/triggers", "/var/lib/dpkg/parts", "/var/lib/dpkg/alternatives"} {
		d.dir(name)
	}
	d.take("/var/lib/dpkg/info/format")
	d.make("/var/lib/dpkg/status")
	d.w.file("var/lib/dpkg/status", 0o644, kept.Bytes())
	for _, name := range []string{"diversions", "statoverride", "available"} {
		d.make("/var/lib/dpkg/" + name)
		d.w.file("var/lib/dpkg/"+name, 0o644, nil)
	}
}
