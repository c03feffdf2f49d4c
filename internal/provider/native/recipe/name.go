package recipe

import (
	"regexp"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// grammar is what a manager's tool cannot read as anything but the name of a
// package of its registry, and one version of it. Narrower than the registry's
// own rule where the tool has a second meaning for a name.
type grammar struct {
	name, version *regexp.Regexp
	form, exact   string   // the two for a person
	files         []string // ends of a name that the tool takes for a file
	most          int      // bytes of a name
}

var grammars = map[sandbox.PackageManager]grammar{
	// A word that ends in a dash would remove the package before it, and one that ends
	// in a plus is read a second time without it. No version ends so; of a name, as g++,
	// the check behind the installation says which of the two it was.
	sandbox.ManagerApt: {
		name:    regexp.MustCompile(`\A[a-z0-9][a-z0-9+.-]*[a-z0-9+.]\z`),
		version: regexp.MustCompile(`\A(?:[0-9]+:)?[0-9](?:[A-Za-z0-9.+~-]*[A-Za-z0-9~])?\z`),
		form:    "a Debian package, as in jq (lower case, digits, + . -)", exact: "one Debian version, as in 1.6-2.1", most: 128,
	},
	sandbox.ManagerCargo: {
		name:    regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]*\z`),
		version: semver,
		form:    "a crate, as in ripgrep", exact: "one whole version, as in 14.1.0", most: 64,
	},
	sandbox.ManagerGem: {
		name:    regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]*\z`),
		version: regexp.MustCompile(`\A[0-9]+(?:\.[0-9A-Za-z]+)*\z`),
		form:    "a gem, as in rake", exact: "one version, as in 13.2.1", files: []string{".gem"}, most: 128,
	},
	// The first element has a dot: without one it is of Go itself. No element
	// begins with one, so that none is ".." or "...", which is a pattern.
	sandbox.ManagerGo: {
		name:    regexp.MustCompile(`\A[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+(?:/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+\z`),
		version: regexp.MustCompile(`\Av(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+incompatible)?\z`),
		form:    "the path of a command, as in golang.org/x/tools/cmd/goimports", exact: "one whole version, as in v0.24.0", files: []string{".go"}, most: 200,
	},
	sandbox.ManagerNpm: {
		name:    regexp.MustCompile(`\A(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*\z`),
		version: semver,
		form:    "a package of the registry, as in prettier or @scope/name", exact: "one whole version, as in 3.3.3 (no range, no tag, no alias)",
		files: []string{".tgz", ".tar", ".tar.gz"}, most: 200,
	},
	sandbox.ManagerPip: {
		name:    regexp.MustCompile(`\A[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\z`),
		version: regexp.MustCompile(`\A[0-9][0-9A-Za-z.!+_-]*\z`),
		form:    "a distribution, as in requests (no extras)", exact: "one version, as in 2.32.3",
		files: []string{".zip", ".whl", ".tar", ".tgz", ".tbz", ".txz", ".tlz", ".gz", ".bz2", ".xz", ".lz", ".lzma"}, most: 128,
	},
}

var semver = regexp.MustCompile(`\A(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?\z`)

// Check holds one package to its manager's grammar.
// Errors: *sandbox.Invalid with the field "manager", "name" or "version".
func Check(p sandbox.Package) error {
	g, ok := grammars[p.Manager]
	switch {
	case !ok:
		return invalid("manager", "apt, cargo, gem, go, npm or pip", string(p.Manager))
	case len(p.Name) > g.most || !g.name.MatchString(p.Name) || g.file(p.Name):
		return invalid("name", g.form, p.Name)
	case p.Version != "" && (len(p.Version) > sandbox.MaxIdentityBytes || !g.version.MatchString(p.Version)):
		return invalid("version", g.exact, p.Version)
	}
	return nil
}

// file reports whether the tool would look for a file of that name first.
func (g grammar) file(name string) bool {
	for _, end := range g.files {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return true
		}
	}
	return false
}

func invalid(field, expected, got string) *sandbox.Invalid {
	const most = 200
	if len(got) > most {
		got = got[:most]
	}
	return &sandbox.Invalid{Field: field, Expected: expected, Got: got}
}
