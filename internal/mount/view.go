package mount

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

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
