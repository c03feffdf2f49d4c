// Package scaffold makes the skeleton of a sandbox provider: a program that
// runs, in one of several languages, with the author kit beside it.
//
// A skeleton is made of layers of files: what is common to all, what belongs to
// the language, and the kit. The examples in the tree are those of the
// languages, so that what is tested is what is handed out. To add a language,
// add a line to languages.
//
// Trusts: nothing; it writes into a directory that it made or found empty.
// Concurrency: any number of goroutines, each with a directory of its own.
// Source: contract "Machine-readable author kit".
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/checkfu/checkfu/examples"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/vectors"
)

// The tiers that a skeleton may have.
const (
	Minimum = "minimum" // no mounts, no reads, no optional member
	DayOne  = "day-one" // mounts and reads
	Durable = "durable" // snapshots too
)

// Options say what is made.
type Options struct {
	Language string // one of Languages
	Tier     string // one of Tiers; "" is DayOne, which a first test is quick with
	Name     string // the provider's coordinate, [a-z0-9][a-z0-9._-]*
}

// OptionError says which option is wrong.
type OptionError struct{ Option, Expected, Got string }

// Error is "option: expected …, got …".
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s: expected %s, got %q", e.Option, e.Expected, e.Got)
}

//go:embed common python typescript all:go
var own embed.FS

// language is how one skeleton is made.
type language struct {
	files    func() fs.FS           // of the provider
	layer    string                 // of own, beside common
	settings string                 // the file with the two lines below
	lines    map[string]string      // option: its line in the example, with %q for its value
	given    map[string]string      // option: its value in the example
	add      func(dir string) error // what is in no layer; nil is nothing
}

// languages is the registry.
var languages = map[string]language{
	"go": {
		files: examples.Go, layer: "go", settings: "settings.go", add: modules,
		lines: map[string]string{"name": "\tname = %q\n", "tier": "\ttier = %q\n"},
		given: map[string]string{"name": "example-go", "tier": DayOne},
	},
	"python": {
		files: examples.Python, layer: "python", settings: "settings.py",
		lines: map[string]string{"name": "NAME = %q\n", "tier": "TIER = %q\n"},
		given: map[string]string{"name": "example-python", "tier": DayOne},
	},
	"typescript": {
		files: examples.TypeScript, layer: "typescript", settings: "settings.mjs",
		lines: map[string]string{"name": "export const NAME = %q;\n", "tier": "export const TIER = %q;\n"},
		given: map[string]string{"name": "example-typescript", "tier": DayOne},
	},
}

// Tiers returns what Options.Tier may be, the most last. Every language has them
// all.
func Tiers() []string { return []string{Minimum, DayOne, Durable} }

// Languages returns what Options.Language may be, sorted.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }

// Check finds what is wrong with the options.
// Errors: *OptionError.
func (o Options) Check() error {
	if _, ok := languages[o.Language]; !ok {
		return &OptionError{"lang", fmt.Sprintf("one of %q", Languages()), o.Language}
	}
	if o.Tier != "" && !slices.Contains(Tiers(), o.Tier) {
		return &OptionError{"tier", fmt.Sprintf("one of %q", Tiers()), o.Tier}
	}
	t := sandbox.Target{Provider: o.Name, ProviderRevision: "1", MaterializationRevision: "1", Placement: sandbox.PlacementLocal}
	if err := (*sandbox.Invalid)(nil); errors.As(t.Validate(), &err) {
		return &OptionError{"name", "a coordinate: lower-case letters, digits, '.', '_' and '-', of which the first is a letter or a digit", o.Name}
	}
	return nil
}

// Write makes the skeleton in dir, all of it or nothing. dir is made, or is
// empty.
// Errors: *OptionError, also for dir; *fs.PathError.
func Write(dir string, o Options) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	made, err := claim(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		// It was empty, so all that lies there is ours.
		ours, _ := os.ReadDir(dir)
		for _, e := range ours {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
		if made {
			err = errors.Join(err, os.Remove(dir))
		}
	}()
	l := languages[o.Language]
	if o.Tier == "" {
		o.Tier = DayOne
	}
	common, err := fs.Sub(own, "common")
	if err != nil {
		return err
	}
	mine, err := fs.Sub(own, l.layer)
	if err != nil {
		return err
	}
	fill := func(path string, data []byte) ([]byte, error) { return l.fill(o, path, data) }
	named := func(_ string, data []byte) ([]byte, error) {
		return bytes.ReplaceAll(data, []byte("{{name}}"), []byte(o.Name)), nil
	}
	err = errors.Join(
		lay(dir, common, named), lay(dir, mine, named), lay(dir, l.files(), fill), lay(filepath.Join(dir, "kit"), vectors.Files(), as))
	if err == nil && l.add != nil {
		err = l.add(dir)
	}
	return err
}

// as changes nothing.
func as(_ string, data []byte) ([]byte, error) { return data, nil }

// claim makes dir, or finds it empty.
func claim(dir string) (made bool, err error) {
	const expected = "a directory that can be made, or an empty one"
	switch entries, err := os.ReadDir(dir); {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(dir, 0o755); err != nil {
			return false, &OptionError{"DIR", expected, err.Error()}
		}
		return true, nil
	case err != nil:
		return false, &OptionError{"DIR", expected, err.Error()}
	case len(entries) > 0:
		return false, &OptionError{"DIR", expected, dir + ", which holds " + entries[0].Name()}
	}
	return false, nil
}

// fill puts the options in the place of those of the example. A line that is not
// there any more is a defect of this program, and nothing is made of it.
func (l language) fill(o Options, path string, data []byte) ([]byte, error) {
	if path != l.settings {
		return data, nil
	}
	for option, value := range map[string]string{"name": o.Name, "tier": o.Tier} {
		line := fmt.Sprintf(l.lines[option], l.given[option])
		if bytes.Count(data, []byte(line)) != 1 {
			return nil, fmt.Errorf("scaffold: %s does not say %q once", path, line)
		}
		data = bytes.Replace(data, []byte(line), fmt.Appendf(nil, l.lines[option], value), 1)
	}
	return data, nil
}

// lay writes one layer. What begins as a script is a program.
func lay(dir string, from fs.FS, change func(string, []byte) ([]byte, error)) error {
	return fs.WalkDir(from, ".", func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(from, path)
		if err == nil {
			data, err = change(path, data)
		}
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(data, []byte("#!")) {
			mode = 0o755
		}
		return os.WriteFile(to, data, mode)
	})
}
