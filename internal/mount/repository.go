package mount

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
			return fmt.Errorf("not the top of a git repository; %s is", printable(at))
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

var branchName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*$`)

func (r *repository) makeView() error {
	if err := os.Mkdir(r.view, 0o700); err != nil {
		return err
	}
	head, err := readRegular(filepath.Join(r.gitDir, "HEAD"), maxPath)
	if err != nil {
		return err
	}
	if ref, ok := bytes.CutPrefix(head, []byte("ref: refs/heads/")); ok {
		r.branch = "main"
		if name := strings.TrimRight(string(ref), "\n"); safeBranch(name) {
			r.branch = name
		}
	}
	files := map[string][]byte{"HEAD": head, "config": configFile(r.format, nil)}
	for _, name := range []string{"packed-refs", "shallow"} {
		data, err := readRegular(filepath.Join(r.common, name), maxIndex)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		files[name] = data
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(r.view, name), data, 0o600); err != nil {
			return err
		}
	}
	for _, dir := range []string{"info", "objects", "empty"} {
		if err := os.Mkdir(filepath.Join(r.view, dir), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(r.view, "info", "exclude"), r.exclude, 0o600); err != nil {
		return err
	}
	for _, name := range []string{"refs", "logs"} {
		if err := os.Symlink(filepath.Join(r.common, name), filepath.Join(r.view, name)); err != nil {
			return err
		}
	}
	r.env = []string{
		"GIT_DIR=" + r.view,
		"GIT_OBJECT_DIRECTORY=" + filepath.Join(r.common, "objects"),
		"GIT_WORK_TREE=" + filepath.Join(r.view, "empty"),
	}
	return nil
}

func safeBranch(name string) bool {
	return branchName.MatchString(name) && len(name) <= 200 && !strings.Contains(name, "..") &&
		!strings.Contains(name, ".lock") && !strings.HasSuffix(name, ".") && !strings.Contains(name, "./")
}

// configFile is the configuration of a git directory of ours.
func configFile(format string, core []setting) []byte {
	var b strings.Builder
	version := "0"
	if format != "sha1" {
		version = "1"
	}
	b.WriteString("[core]\n\trepositoryformatversion = " + version + "\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n")
	for _, s := range core {
		b.WriteString("\t" + s.key + " = " + s.value + "\n")
	}
	if format != "sha1" {
		b.WriteString("[extensions]\n\tobjectformat = " + format + "\n")
	}
	return []byte(b.String())
}

// copyIndex brings the index, and the base of a split one, into the view.
func (r *repository) copyIndex() error {
	names := []string{filepath.Join(r.gitDir, "index")}
	shared, err := filepath.Glob(filepath.Join(globEscape(r.gitDir), "sharedindex.*"))
	if err != nil {
		return err
	}
	for _, name := range append(names, shared...) {
		data, err := readRegular(name, maxIndex)
		if errors.Is(err, os.ErrNotExist) {
			continue // nothing was ever added
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.view, filepath.Base(name)), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func globEscape(path string) string {
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(path, `\$0`)
}

// resolve turns a revision into a commit id; "" means that HEAD has none yet.
func (r *repository) resolve(ctx context.Context, revision string) (string, error) {
	if revision != "HEAD" && (revision == "" || strings.HasPrefix(revision, "-") || strings.ContainsAny(revision, "\x00\n")) {
		return "", fmt.Errorf("revision %s is not one", printable(revision))
	}
	out, err := r.git.output(ctx, r.view, r.env, nil, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	oid := strings.TrimSpace(string(out))
	if err != nil || !validOID(oid) {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if revision == "HEAD" && oid == "" {
			return "", nil
		}
		return "", fmt.Errorf("no commit %s here", printable(revision))
	}
	return oid, nil
}

// lsTree lists a commit: trees in one list, all else in the other.
func (r *repository) lsTree(ctx context.Context, commit string) (trees, files []entry, err error) {
	err = r.git.stream(ctx, r.view, r.env, nil, func(out *bufio.Reader) error {
		return records(out, 2*MaxEntries, func(s string) error {
			e, err := parseTree(s)
			switch {
			case err != nil:
				return err
			case !admitted(e.path) || !e.known():
				return fmt.Errorf("commit holds an entry that no working tree can: mode %s, path %q", e.mode, clip(e.path))
			case e.mode == modeTree:
				trees = append(trees, e)
			default:
				files = append(files, e)
			}
			if len(files) > MaxEntries {
				return ErrTooMany
			}
			return nil
		})
	}, "ls-tree", "-r", "-t", "-z", "--full-tree", commit)
	return trees, files, err
}

// lsFiles lists the copied index.
func (r *repository) lsFiles(ctx context.Context) (files []entry, err error) {
	err = r.git.stream(ctx, r.view, r.env, nil, func(out *bufio.Reader) error {
		return records(out, MaxEntries, func(s string) error {
			e, err := parseIndex(s)
			if err != nil {
				return err
			}
			if !admitted(e.path) || !e.known() {
				return fmt.Errorf("index holds an entry that no working tree can: mode %s, path %q", e.mode, clip(e.path))
			}
			files = append(files, e)
			return nil
		})
	}, "ls-files", "-s", "-t", "-z")
	return files, err
}

// others lists what is in the working tree and not in the index; whole
// directories, with a slash at the end, where collapse is set.
func (r *repository) others(ctx context.Context, ignored, collapse bool) (paths []string, err error) {
	args := []string{"ls-files", "-o", "-z", "--exclude-standard"}
	if ignored {
		args = append(args, "-i")
	}
	if collapse {
		args = append(args, "--directory", "--no-empty-directory")
	}
	env := append(append([]string(nil), r.env...), "GIT_WORK_TREE="+r.work)
	err = r.git.stream(ctx, r.work, env, nil, func(out *bufio.Reader) error {
		return records(out, MaxEntries, func(s string) error {
			paths = append(paths, s)
			return nil
		})
	}, args...)
	return paths, err
}
