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

// For returns the recipe of packages.
// Errors: *sandbox.Invalid with the field "packages[i].name" or the like, or that
// of a registry.
// Preconditions: packages are valid as those of a sandbox.Profile.
func For(packages []sandbox.Package, r Registries) (Recipe, error) {
	return Recipe{}, &sandbox.Invalid{Field: "packages", Expected: "none", Got: "some"}
}

// Managers are the managers that For has recipes for, sorted.
func Managers() []sandbox.PackageManager { return []sandbox.PackageManager{} }

// Revision names the recipes as they are: it changes with every change of what
// they do, so that no image of another revision is taken for one of this.
const Revision = "1"
