package cli

import (
	"os"
	"strings"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// parseRepo reads DIR[@REV]. A directory whose name holds an "@" is found
// first, so every directory can be named.
func parseRepo(s string) (*runner.Repo, error) {
	const flag, expected = "--repo", "a directory of a Git repository, or DIRECTORY@REVISION"
	if s == "" || strings.IndexByte(s, 0) >= 0 {
		return nil, bad(flag, expected, s)
	}
	if isDir(s) {
		return &runner.Repo{Dir: s}, nil
	}
	for i := range s {
		if s[i] == '@' && i > 0 && isDir(s[:i]) {
			if s[i+1:] == "" {
				return nil, bad(flag, "a revision after the @", s)
			}
			return &runner.Repo{Dir: s[:i], Revision: s[i+1:]}, nil
		}
	}
	return nil, bad(flag, expected, s)
}

// parseMount reads SRC:DST[:ro|rw]; read-only is the default.
func parseMount(s string) (runner.DirMount, error) {
	const flag = "--mount"
	none := runner.DirMount{}
	rest, access := s, sandbox.AccessReadOnly
	if cut, ok := strings.CutSuffix(s, ":ro"); ok {
		rest = cut
	} else if cut, ok := strings.CutSuffix(s, ":rw"); ok {
		rest, access = cut, sandbox.AccessReadWrite
	}
	i := strings.LastIndex(rest, ":/")
	if i <= 0 || strings.ContainsRune(rest[i+1:], ':') {
		return none, bad(flag, "SOURCE:/ABSOLUTE/PATH, with :ro or :rw after it if you like", s)
	}
	m := runner.DirMount{Source: rest[:i], Path: rest[i+1:], Access: access}
	if !isDir(m.Source) {
		return none, bad(flag, "a directory before the colon", m.Source)
	}
	if err := sandbox.CheckPath("path", m.Path); err != nil {
		return none, bad(flag, "a clean absolute path inside, below no reserved one", m.Path)
	}
	return m, nil
}

// checkMounts names the flag for what is wrong with the plan as a whole.
func checkMounts(spec runner.Spec) error {
	var mounts []sandbox.Mount
	if spec.Repo != nil {
		mounts = append(mounts, sandbox.Mount{MountPath: runner.RepoPath, Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit})
	}
	for _, m := range spec.Mounts {
		mounts = append(mounts, sandbox.Mount{MountPath: m.Path, Access: m.Access, Kind: sandbox.MountProject})
		if err := sandbox.ValidateMounts(mounts); err != nil {
			return usage("--mount: %s", oneLine(err.Error()))
		}
	}
	return nil
}

// parseEnv reads K=V, or K for the value that our own environment has. No
// error holds a value; nor does it hold the text before the first "=" where
// that is no name, since a lost "K=" would make it the value.
func parseEnv(s string, lookup func(string) (string, bool)) (key, value string, err error) {
	const flag = "--env"
	key, value, given := strings.Cut(s, "=")
	if sandbox.CheckEnvironment(key, "") != nil {
		return "", "", usage("%s: expected KEY=VALUE or KEY with a KEY of letters, digits and _, got something else (not shown)", flag)
	}
	if !given {
		if value, given = lookup(key); !given {
			return "", "", bad(flag, "a variable that is set here, or KEY=VALUE", key)
		}
	}
	if sandbox.CheckEnvironment(key, value) != nil {
		return "", "", usage("%s: expected a value of at most %d bytes without NUL for %s", flag, sandbox.MaxEnvironmentBytes, key)
	}
	return key, value, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
