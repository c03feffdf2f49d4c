package argument

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/internal/provider/native/recipe"
	"github.com/checkfu/checkfu/sandbox"
)

// Package reads MANAGER:NAME or MANAGER:NAME@VERSION. The last @ of a name that has
// one behind its first byte begins the version: an npm scope begins with another.
// Errors: *Error, with what is wrong and what to write instead.
func Package(s string) (sandbox.Package, error) {
	manager, name, ok := strings.Cut(s, ":")
	if !ok || name == "" {
		return sandbox.Package{}, Unexpected("--package", "MANAGER:NAME or MANAGER:NAME@VERSION, as in apt:jq or npm:prettier@3.3.3", s)
	}
	p := sandbox.Package{Manager: sandbox.PackageManager(manager), Name: name}
	if !slices.Contains(recipe.Managers(), p.Manager) {
		return sandbox.Package{}, Unexpected("--package", "a manager that packages come from, one of "+managers(), manager)
	}
	if at := strings.LastIndexByte(name, '@'); at > 0 {
		p.Name, p.Version = name[:at], name[at+1:]
		if p.Version == "" {
			return sandbox.Package{}, Unexpected("--package", "a version behind @, or no @", s)
		}
	}
	if bad, wrong := errors.AsType[*sandbox.Invalid](recipe.Check(p)); wrong {
		return sandbox.Package{}, Unexpected("--package", "as the "+bad.Field+" "+bad.Expected, bad.Got)
	}
	return p, nil
}

// Packages reads several, and puts them in the order of a profile.
// Errors: *Error, also for a name that was given twice.
func Packages(given []string) ([]sandbox.Package, error) {
	all := []sandbox.Package{}
	for _, s := range given {
		p, err := Package(s)
		if err != nil {
			return nil, err
		}
		for _, q := range all {
			if p.Manager == q.Manager && p.Name == q.Name {
				return nil, Unexpected("--package", "each package once, with one version", s)
			}
		}
		all = append(all, p)
	}
	if len(all) > sandbox.MaxPackages {
		return nil, Wrong("--package: expected at most %d, got %d", sandbox.MaxPackages, len(all))
	}
	slices.SortFunc(all, func(a, b sandbox.Package) int {
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func managers() string {
	var names []string
	for _, m := range recipe.Managers() {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}
