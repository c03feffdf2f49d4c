// Package recipe says how packages get into an image: which commands a build
// machine runs, in which order, with which environment and files, and which
// hosts it may reach. It runs nothing.
//
// A package's name and version are held to a grammar of their manager before
// they become one argument of a command (never a word of a shell): no option, no
// path, no address, no alias.
//
// Trusts: the operator's Registries. Does not trust: names and versions, which
// are whatever a user wrote; what a package does when it is installed is held by
// the build machine and not here.
// Shapes: paths are absolute and of the build machine; hosts and addresses are
// those of package policy.
// Errors: *sandbox.Invalid, with the field of the package or of the registries.
// Concurrency: everything is a value; nothing is kept.
//
// Source: concept "The capability envelope", row package_managers.
package recipe

import (
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// Recipe is all that a build machine is given.
type Recipe struct {
	// Files are laid under the root for the steps to see. They belong to the
	// machine and not to the image.
	Files []File
	// Env is the whole environment of every step as NAME=value, but for the
	// variables that lead to the machine's guard.
	Env []string
	// Destinations is the allowlist of the machine's guard, in order, each once.
	Destinations []sandbox.Destination
	// Pins are for the same guard, of listed hosts only.
	Pins []policy.Pin
	// Steps run one after the other as guest root; the first that fails is the last.
	Steps []Step
	// Discard are absolute paths that the image keeps as its base has them: what a
	// step changes at or below one is no part of the image. Caches, logs, and what
	// differs from one build to the next.
	Discard []string
}

// File is one file of a build machine, owned by guest root.
type File struct {
	Path    string
	Mode    uint32 // permission bits
	Content []byte
}

// Step is one command.
type Step struct {
	// Packages are those that it installs, for the error of a step that fails.
	// None for a step that serves all of its manager's.
	Packages []sandbox.Package
	// Argv is the command. Argv[0] is absolute, or a name that is looked for in
	// Env's PATH.
	Argv []string
	// Dir is the working directory.
	Dir string
	// Missing is what to say where the image has no Argv[0]: what lacks, and what to
	// do about it.
	Missing string
}

// dir is where a build machine keeps what is its own: homes, caches, sources.
const dir = "/var/lib/checkfu-build"

// authorities is the file of Registries.Authorities.
const authorities = dir + "/ca.pem"

// part is the recipe of one manager.
type part struct {
	files   []File
	env     []string
	steps   []Step
	discard []string
}

// managed are the managers that have a recipe, in the order of their steps: apt
// first, because its packages may be the tools of the others.
var managed = []struct {
	manager sandbox.PackageManager
	tested  bool // end to end, with the real tool; only these are offered
	part    func([]sandbox.Package, source) part
}{
	{sandbox.ManagerApt, true, apt},
	{sandbox.ManagerCargo, false, cargo},
	{sandbox.ManagerGem, false, gem},
	{sandbox.ManagerGo, true, golang},
	{sandbox.ManagerNpm, true, npm},
	{sandbox.ManagerPip, true, pip},
}

// Managers are the managers that For has recipes for, sorted.
func Managers() []sandbox.PackageManager {
	all := []sandbox.PackageManager{}
	for _, m := range managed {
		if m.tested {
			all = append(all, m.manager)
		}
	}
	return all
}

// For returns the recipe of packages.
// Errors: *sandbox.Invalid with the field "packages[i].name" or the like: what
// Check says, a manager that is not offered or that r names no registry of, a name
// that stands twice (two versions of one package are not both there in the end), no
// packages at all; or "authorities" where r has none.
func For(packages []sandbox.Package, r Registries) (Recipe, error) {
	if len(packages) == 0 || len(packages) > sandbox.MaxPackages {
		return Recipe{}, invalid("packages", "1 to "+strconv.Itoa(sandbox.MaxPackages), strconv.Itoa(len(packages)))
	}
	if len(r.Authorities) == 0 {
		return Recipe{}, invalid("authorities", "certificates that vouch for the registries", "none")
	}
	of, names := map[sandbox.PackageManager][]sandbox.Package{}, map[sandbox.Package]bool{}
	for i, p := range packages {
		at := "packages[" + strconv.Itoa(i) + "]."
		if err := Check(p); err != nil {
			return Recipe{}, within(at, err)
		}
		if !slices.Contains(Managers(), p.Manager) {
			return Recipe{}, invalid(at+"manager", words(Managers()), string(p.Manager))
		}
		if _, named := r.of[p.Manager]; !named {
			return Recipe{}, invalid(at+"manager", "one whose registry the settings of registries name", string(p.Manager))
		}
		name := sandbox.Package{Manager: p.Manager, Name: p.Name}
		if names[name] {
			return Recipe{}, invalid(at+"name", "each once, with one version", p.Name)
		}
		names[name] = true
		of[p.Manager] = append(of[p.Manager], p)
	}
	return compile(of, r), nil
}

// compile puts the parts together.
func compile(of map[sandbox.PackageManager][]sandbox.Package, r Registries) Recipe {
	out := Recipe{
		Files: []File{{Path: authorities, Mode: 0o644, Content: r.Authorities}},
		Env: []string{
			// Where npm and go put commands comes last: one that a package calls "npm" or
			// "git" is not what the next step runs.
			"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin:/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin",
			"HOME=" + dir + "/home", "LANG=C.UTF-8", "TZ=UTC",
			"SSL_CERT_FILE=" + authorities,
			"SOURCE_DATE_EPOCH=1577836800", // of those that would write the time of the build into what they make
		},
		Steps:   []Step{{Argv: []string{"mkdir", "-p", dir + "/home"}}},
		Discard: []string{dir, "/run", "/tmp", "/var/tmp"},
	}
	for _, m := range managed {
		packages := of[m.manager]
		if len(packages) == 0 {
			continue
		}
		from := r.of[m.manager]
		p := m.part(packages, from)
		out.Files = append(out.Files, p.files...)
		out.Env = append(out.Env, p.env...)
		out.Steps = append(out.Steps, p.steps...)
		out.Discard = append(out.Discard, p.discard...)
		out.Destinations = append(out.Destinations, from.destinations...)
	}
	// A package's script that touches one of them, as "chmod -R" does, would leave it in
	// the image.
	for _, f := range out.Files {
		out.Discard = append(out.Discard, f.Path)
	}
	out.Destinations = sorted(out.Destinations)
	slices.Sort(out.Discard)
	for i := range out.Steps {
		out.Steps[i].Dir = "/"
	}
	for _, p := range r.Pins {
		if slices.ContainsFunc(out.Destinations, func(d sandbox.Destination) bool { return d.Host == p.Host }) {
			out.Pins = append(out.Pins, p)
		}
	}
	return out
}

func words(managers []sandbox.PackageManager) string {
	text := make([]string, len(managers))
	for i, m := range managers {
		text[i] = string(m)
	}
	return strings.Join(text, ", ")
}

// Revision names the recipes as they are: it changes with every change of what
// they do, so that no image of another revision is taken for one of this.
const Revision = "5"
