// Package arch holds the house rules that a compiler does not: which room may
// import which, what the contract may link, and what every room must say of
// itself.
package arch

import (
	"bufio"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/checkfu/checkfu"

// pkg is what `go list -json` says of one package.
type pkg struct {
	ImportPath   string
	Dir          string
	Doc          string
	Standard     bool
	GoFiles      []string
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

// list loads packages. Every source file is read first, so that a change to
// any of them is a change to this test's inputs and never a cached pass.
func list(t *testing.T, args ...string) map[string]pkg {
	t.Helper()
	sources(t)
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Doc,Standard,GoFiles,Imports,Deps,TestImports,XTestImports"}, args...)...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	all := map[string]pkg{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources returns every Go file of the module with its text.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "out" || d.Name()[0] == '_' || d.Name() == "tmpdeps") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") || filepath.Base(path) == "go.mod" {
			text, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, root(t)+"/")] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func short(path string) string {
	if path == module {
		return "." // the root, which holds sources and no rules
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

// rules is rules.txt: one line a package with its exact imports of ours, plus
// "std PKG:" (all that a package may import of the standard library) and
// "never PKG:" (what it may not link at any depth).
type rules struct {
	imports, std, never map[string][]string
}

func load(t *testing.T) rules {
	t.Helper()
	f, err := os.Open("rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := rules{map[string][]string{}, map[string][]string{}, map[string][]string{}}
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		head, tail, ok := strings.Cut(line, ":")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if !ok {
			t.Fatalf("rules.txt: no colon in %q", line)
		}
		into, name := r.imports, strings.TrimSpace(head)
		if rest, is := strings.CutPrefix(name, "std "); is {
			into, name = r.std, rest
		} else if rest, is := strings.CutPrefix(name, "never "); is {
			into, name = r.never, rest
		}
		if _, twice := into[name]; twice {
			t.Errorf("rules.txt: %s stands twice", name)
		}
		into[name] = strings.Fields(tail)
	}
	return r
}

func TestEachRoomImportsExactlyWhatItsLineSays(t *testing.T) {
	r, all := load(t), list(t, "./...")
	for path, p := range all {
		name := short(path)
		if name == "tests/arch" || strings.Contains(name, "testdata") || name == "internal/tmpdeps" {
			continue
		}
		allowed, ok := r.imports[name]
		if !ok {
			t.Errorf("%s has no line in rules.txt", name)
			continue
		}
		var ours []string
		for _, i := range p.Imports {
			if strings.HasPrefix(i, module) {
				ours = append(ours, short(i))
			}
		}
		for _, i := range ours {
			if !slices.Contains(allowed, i) {
				t.Errorf("%s imports %s, which its line does not allow", name, i)
			}
		}
		for _, i := range allowed {
			if !slices.Contains(ours, i) {
				t.Errorf("%s no longer imports %s: take it off its line", name, i)
			}
		}
	}
	for name := range r.imports {
		if _, ok := all[strings.TrimSuffix(module+"/"+name, "/.")]; !ok {
			t.Errorf("rules.txt names %s, which is no package", name)
		}
	}
}

// A package's line may only name packages that stand below it, so that the
// order of rules.txt is the order of the floors.
func TestTheFloorsOnlyLookDown(t *testing.T) {
	text, err := os.ReadFile("rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	n := 0
	r := load(t)
	for line := range strings.Lines(string(text)) {
		head, _, ok := strings.Cut(line, ":")
		if name := strings.TrimSpace(head); ok && r.imports[name] != nil {
			at[name] = n
			n++
		}
	}
	for name, imports := range r.imports {
		for _, i := range imports {
			if at[i] <= at[name] {
				t.Errorf("%s imports %s, which does not stand below it", name, i)
			}
		}
	}
}

func TestTheContractIsStandardLibraryOnly(t *testing.T) {
	r, all := load(t), list(t, "./...")
	for name, allowed := range r.std {
		p, ok := all[module+"/"+name]
		if !ok {
			t.Errorf("std %s: no such package", name)
		}
		for _, i := range p.Imports {
			if !slices.Contains(allowed, i) {
				t.Errorf("%s imports %s", name, i)
			}
		}
		for _, a := range allowed {
			if !slices.Contains(p.Imports, a) {
				t.Errorf("%s no longer imports %s: take it off its line", name, a)
			}
		}
	}
}

func TestNothingLinksWhatItMustNotHold(t *testing.T) {
	r, all := load(t), list(t, "-deps", "./...")
	for name, banned := range r.never {
		p, ok := all[module+"/"+name]
		if !ok {
			t.Errorf("never %s: no such package", name)
		}
		for _, b := range banned {
			tree := strings.TrimSuffix(b, "/...")
			full := tree
			if strings.HasPrefix(tree, "internal/") || strings.HasPrefix(tree, "cmd/") {
				full = module + "/" + tree
			}
			exists := false
			for path := range all {
				exists = exists || path == full || strings.HasPrefix(path, full+"/")
			}
			if !exists {
				t.Errorf("never %s: %s does not exist any more", name, b)
			}
			for _, d := range p.Deps {
				if d == full || tree != b && strings.HasPrefix(d, full+"/") {
					t.Errorf("%s links %s", name, d)
				}
			}
		}
	}
}

func TestEveryRoomSaysWhatItIs(t *testing.T) {
	for path, p := range list(t, "./...") {
		if len(p.GoFiles) > 0 && p.Doc == "" && short(path) != "internal/tmpdeps" {
			t.Errorf("%s has no package comment", short(path))
		}
	}
}

// Every exported name of the rooms that carry the contract has a comment, and
// each file that states rules names its source.
func TestTheContractSaysWhereItComesFrom(t *testing.T) {
	for file, text := range sources(t) {
		dir := filepath.Dir(file)
		if dir != "sandbox" && dir != "internal/sandboxruntime" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || ast.IsExported(receiver(d))) {
					t.Errorf("%s: %s has no comment", file, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
						t.Errorf("%s: %s has no comment", file, ts.Name.Name)
					}
				}
			}
		}
	}
	for _, must := range []string{"vocabulary", "bounds", "error", "envelope", "profile", "path", "instance", "command", "file", "snapshot", "process", "provider"} {
		if !strings.Contains(sources(t)["sandbox/"+must+".go"], "Source: ") {
			t.Errorf("sandbox/%s.go names no source", must)
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	switch r := d.Recv.List[0].Type.(type) {
	case *ast.Ident:
		return r.Name
	case *ast.StarExpr:
		if id, ok := r.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// matchesText finds an error that is told apart by its text.
var matchesText = regexp.MustCompile(`strings\.(Contains|HasPrefix|HasSuffix|EqualFold)\([a-z]*[eE]rr\.Error\(\)`)

func TestFilesCanBeReadAtOneSitting(t *testing.T) {
	for file, text := range sources(t) {
		if n := strings.Count(text, "\n"); n > 600 {
			t.Errorf("%s has %d lines: two rooms would read better", file, n)
		}
		for line := range strings.Lines(text) {
			if matchesText.MatchString(line) && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s matches an error by its text: %s", file, strings.TrimSpace(line))
			}
		}
	}
	for file := range sources(t) {
		for _, bad := range []string{"util", "helper", "manager", "common"} {
			if slices.Contains(strings.FieldsFunc(strings.ToLower(file), func(r rune) bool { return r == '/' || r == '_' || r == '.' }), bad) {
				t.Errorf("%s: a room is named for what is in it", file)
			}
		}
	}
}
