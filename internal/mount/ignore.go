package mount

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// excludeRules gathers the ignore rules that are not in the tree, weakest
// first: the user's own, the file that the repository's configuration names,
// info/exclude. A file that cannot be read gives no rules, as with git.
func excludeRules(ctx context.Context, g *git, work, foreign, info string) []byte {
	var rules bytes.Buffer
	for _, name := range []string{userExcludes(ctx, g), expandHome(work, foreign), info} {
		if name == "" {
			continue
		}
		if data, err := readRegular(name, maxSmall); err == nil {
			rules.Write(data)
			rules.WriteByte('\n')
		}
	}
	return rules.Bytes()
}

// userExcludes asks for core.excludesFile in the user's own configuration.
// Without it a file that the user ignores everywhere, such as .env, would
// count as untracked. The configuration is the user's, and is only listed.
func userExcludes(ctx context.Context, g *git) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.path, "config", "--global", "--includes", "--type=path", "--get", "core.excludesFile")
	cmd.Dir = g.temp
	cmd.Env = append(os.Environ(), "GIT_DIR=/dev/null", "GIT_CEILING_DIRECTORIES="+g.temp)
	cmd.WaitDelay = time.Second
	if out, err := cmd.Output(); err == nil {
		return strings.TrimRight(string(out), "\n")
	}
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "git", "ignore")
	}
	return expandHome("", "~/.config/git/ignore")
}

func expandHome(base, name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		return filepath.Join(home, rest)
	}
	if name == "" || base == "" && !filepath.IsAbs(name) {
		return ""
	}
	return absolute(base, name)
}

// ignoredAmong returns those of the paths that the ignore rules of the plan
// cover. The rules are those that were staged: what the sandbox wrote into a
// .gitignore cannot hide a file from the patch.
func (p *Plan) ignoredAmong(ctx context.Context, paths []string) (map[string]bool, error) {
	ignored := map[string]bool{}
	if !p.isGit || len(paths) == 0 {
		return ignored, nil
	}
	temp, err := os.MkdirTemp(p.temp, "ignore-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	gitDir, work := filepath.Join(temp, "git"), filepath.Join(temp, "work")
	if err := emptyGitDir(gitDir, configFile("sha1", nil)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(gitDir, "info", "exclude"), p.exclude, 0o600); err != nil {
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	for _, f := range p.Files {
		if path.Base(f.Path) != ".gitignore" || inGit(f.Path) {
			continue
		}
		if err := f.writeBelow(work); err != nil {
			return nil, err
		}
	}
	env := []string{"GIT_DIR=" + gitDir, "GIT_WORK_TREE=" + work}
	in := strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	// -v -n answers for every path, so the exit status is not the answer.
	err = p.git.stream(ctx, work, env, in, func(r *bufio.Reader) error {
		for {
			var f [4]string // source, line, pattern, path
			for i := range f {
				s, err := record(r)
				if err == io.EOF && i == 0 {
					return nil
				}
				if err != nil {
					return err
				}
				f[i] = s
			}
			if f[2] != "" && !strings.HasPrefix(f[2], "!") {
				ignored[f[3]] = true
			}
		}
	}, "check-ignore", "--stdin", "-z", "-v", "-n", "--no-index")
	if err != nil && len(ignored) == 0 && ctx.Err() == nil && exitCode(err) == 1 {
		err = nil // nothing is ignored
	}
	return ignored, err
}

// emptyGitDir makes what git takes for a git directory, with nothing in it.
func emptyGitDir(dir string, config []byte) error {
	for _, name := range []string{"", "objects", "objects/pack", "objects/info", "refs", "refs/heads", "info"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), config, 0o600); err != nil {
		return err
	}
	// HEAD is unborn, so no git takes attributes from its tree.
	return os.WriteFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600)
}

func (f File) writeBelow(dir string) error {
	data, err := f.Bytes()
	if err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}
