package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// repository is a foreign repository, seen through a git directory of ours:
// view holds our own config, a copy of HEAD and of the index, and names the
// foreign refs and objects.
type repository struct {
	git      *git
	work     string // top of the working tree, or "" for a bare repository
	gitDir   string // of this working tree
	common   string // holds refs and objects
	view     string
	env      []string
	format   string // "sha1" or "sha256"
	fileMode bool   // the worktree's executable bits mean something
	branch   string // short name, or "" when HEAD is detached
	eol      []setting
	exclude  []byte // ignore rules from outside the tree
}

// Bounds of the files that are copied out of a git directory.
const (
	maxSmall = 1 << 20
	maxIndex = 256 << 20
)

// openRepository finds the git directory of dir and checks that it belongs
// there. A directory from a stranger can hold a .git file, link, commondir or
// alternates that point at another repository of the user's; following it
// would put that one's files into the sandbox.
func openRepository(ctx context.Context, g *git, dir string, alternates bool) (*repository, error) {
	r := &repository{git: g, view: filepath.Join(g.temp, "view"), fileMode: true, format: "sha1"}
	if err := r.locate(ctx, dir); err != nil {
		return nil, err
	}
	if err := r.checkStore(alternates); err != nil {
		return nil, err
	}
	if err := r.settings(ctx); err != nil {
		return nil, err
	}
	return r, r.makeView()
}

func (r *repository) locate(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return err
	}
	dot := filepath.Join(dir, ".git")
	st, err := os.Lstat(dot)
	switch {
	case err == nil && st.IsDir():
		r.work, r.gitDir = dir, dot
	case err == nil && st.Mode().IsRegular():
		r.work = dir
		if r.gitDir, err = r.follow(ctx, dot); err != nil {
			return err
		}
	case err == nil:
		return errors.New(".git is neither a directory nor a file")
	case isGitDir(dir):
		r.gitDir = dir
	default:
		return notRepository(dir)
	}
	if !isGitDir(r.gitDir) && r.work != "" {
		if _, err := os.Lstat(filepath.Join(r.gitDir, "commondir")); err != nil {
			return errors.New("not a git repository: its .git has no HEAD, objects or refs")
		}
	}
	return r.locateCommon()
}

// notRepository names the repository around dir, if there is one, for the
// person who is in a subdirectory of it.
func notRepository(dir string) error {
	for at := filepath.Dir(dir); at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return fmt.Errorf("not the top of a git repository, which is %s", printable(at))
		}
	}
	return errors.New("not a git repository")
}

func isGitDir(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || !st.IsDir() {
			return false
		}
	}
	st, err := os.Lstat(filepath.Join(dir, "HEAD"))
	return err == nil && st.Mode().IsRegular()
}

// follow reads a .git file. The git directory that it names has to name this
// working tree in turn.
func (r *repository) follow(ctx context.Context, dot string) (string, error) {
	data, err := readRegular(dot, maxPath+16)
	if err != nil {
		return "", err
	}
	target, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: ")
	if !ok {
		return "", errors.New(`.git file: want "gitdir: PATH"`)
	}
	target, err = filepath.EvalSymlinks(absolute(r.work, target))
	if err != nil {
		return "", err
	}
	back, err := readRegular(filepath.Join(target, "gitdir"), maxPath+1)
	if err == nil && same(absolute(target, strings.TrimRight(string(back), "\r\n")), dot) {
		return target, nil
	}
	config, err := r.foreignConfig(ctx, filepath.Join(target, "config"))
	if err != nil {
		return "", err
	}
	for _, s := range config {
		if s.key == "core.worktree" && same(absolute(target, s.value), r.work) {
			return target, nil
		}
	}
	return "", fmt.Errorf(".git file names %s, which does not name this directory as its working tree", printable(target))
}

func absolute(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

func same(a, b string) bool {
	sa, err := os.Stat(a)
	if err != nil {
		return false
	}
	sb, err := os.Stat(b)
	return err == nil && os.SameFile(sa, sb)
}

func (r *repository) locateCommon() error {
	r.common = r.gitDir
	data, err := readRegular(filepath.Join(r.gitDir, "commondir"), maxPath+1)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	common, err := filepath.EvalSymlinks(absolute(r.gitDir, strings.TrimRight(string(data), "\r\n")))
	if err != nil {
		return err
	}
	if filepath.Dir(r.gitDir) != filepath.Join(common, "worktrees") || !isGitDir(common) {
		return errors.New("commondir names a repository that this is no working tree of")
	}
	r.common = common
	return nil
}

func (r *repository) checkStore(alternates bool) error {
	objects := filepath.Join(r.common, "objects")
	if _, err := os.Lstat(filepath.Join(objects, "info", "alternates")); err == nil && !alternates {
		return errors.New("objects are borrowed from another repository (objects/info/alternates); allow it, or run git repack -a -d")
	}
	for _, dir := range []string{objects, filepath.Join(objects, "pack")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if e.Type()&os.ModeSymlink != 0 {
				return fmt.Errorf("object store holds a symbolic link: %s", printable(e.Name()))
			}
		}
	}
	return nil
}

// foreignConfig lists a configuration file as data. Includes are not
// followed, and nothing that it says is in force for the git that lists it.
func (r *repository) foreignConfig(ctx context.Context, path string) ([]setting, error) {
	data, err := readRegular(path, maxSmall)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(r.git.temp, "foreign")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		return nil, err
	}
	out, err := r.git.output(ctx, r.git.temp, []string{"GIT_DIR=/dev/null"}, nil, "config", "--file", copied, "--no-includes", "-z", "--list")
	if err != nil {
		return nil, fmt.Errorf("configuration of the repository cannot be read: %w", err)
	}
	return parseConfig(out), nil
}

// settings takes from the foreign configuration the few values that change
// what bytes mean, each from a closed set.
func (r *repository) settings(ctx context.Context) error {
	config, err := r.foreignConfig(ctx, filepath.Join(r.common, "config"))
	if err != nil {
		return err
	}
	excludes := ""
	for _, s := range config {
		value := strings.ToLower(s.value)
		switch s.key {
		case "extensions.objectformat":
			if value != "sha1" && value != "sha256" {
				return fmt.Errorf("object format: want sha1 or sha256, got %s", printable(s.value))
			}
			r.format = value
		case "extensions.refstorage":
			if value != "files" {
				return fmt.Errorf("ref storage: want files, got %s", printable(s.value))
			}
		case "core.filemode":
			r.fileMode = value != "false" && value != "0" && value != "no" && value != "off"
		case "core.autocrlf":
			if value == "true" || value == "false" || value == "input" {
				r.eol = append(r.eol, setting{"autocrlf", value})
			}
		case "core.eol":
			if value == "lf" || value == "crlf" || value == "native" {
				r.eol = append(r.eol, setting{"eol", value})
			}
		case "core.excludesfile":
			excludes = s.value
		}
	}
	r.exclude = excludeRules(ctx, r.git, r.work, excludes, filepath.Join(r.common, "info", "exclude"))
	return nil
}
