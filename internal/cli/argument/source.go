package argument

import (
	"os"
	"strings"

	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// Repo reads DIR[@REV]. A directory whose name holds an "@" is found
// first, so every directory can be named.
func Repo(s string) (*runner.Repo, error) {
	const flag, expected = "--repo", "a directory of a Git repository, or DIRECTORY@REVISION"
	if s == "" || strings.IndexByte(s, 0) >= 0 {
		return nil, Unexpected(flag, expected, s)
	}
	if IsDir(s) {
		return &runner.Repo{Dir: s}, nil
	}
	for i := range s {
		if s[i] == '@' && i > 0 && IsDir(s[:i]) {
			if s[i+1:] == "" {
				return nil, Unexpected(flag, "a revision after the @", s)
			}
			return &runner.Repo{Dir: s[:i], Revision: s[i+1:]}, nil
		}
	}
	return nil, Unexpected(flag, expected, s)
}

// Mount reads SRC:DST[:ro|rw]; read-only is the default.
func Mount(s string) (runner.DirMount, error) {
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
		return none, Unexpected(flag, "SOURCE:/ABSOLUTE/PATH, with :ro or :rw after it if you like", s)
	}
	m := runner.DirMount{Source: rest[:i], Path: rest[i+1:], Access: access}
	if !IsDir(m.Source) {
		return none, Unexpected(flag, "a directory before the colon", m.Source)
	}
	if err := sandbox.CheckPath("path", m.Path); err != nil {
		return none, Unexpected(flag, "a clean absolute path inside, below no reserved one", m.Path)
	}
	return m, nil
}

// CheckMounts names the flag for what is wrong with the plan as a whole.
func CheckMounts(spec runner.Spec) error {
	var mounts []sandbox.Mount
	if spec.Repo != nil {
		mounts = append(mounts, sandbox.Mount{MountPath: runner.RepoPath, Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit})
	}
	for _, m := range spec.Mounts {
		mounts = append(mounts, sandbox.Mount{MountPath: m.Path, Access: m.Access, Kind: sandbox.MountProject})
		if err := sandbox.ValidateMounts(mounts); err != nil {
			return Wrong("--mount: %s", OneLine(err.Error()))
		}
	}
	return nil
}

// Env reads K=V, or K for the value that our own environment has. No
// error holds a value; nor does it hold the text before the first "=" where
// that is no name, since a lost "K=" would make it the value.
func Env(s string, lookup func(string) (string, bool)) (key, value string, err error) {
	const flag = "--env"
	key, value, given := strings.Cut(s, "=")
	if sandbox.CheckEnvironment(key, "") != nil {
		return "", "", Wrong("%s: expected KEY=VALUE or KEY with a KEY of letters, digits and _, got something else (not shown)", flag)
	}
	if !given {
		if value, given = lookup(key); !given {
			return "", "", Unexpected(flag, "a variable that is set here, or KEY=VALUE", key)
		}
	}
	if sandbox.CheckEnvironment(key, value) != nil {
		return "", "", Wrong("%s: expected a value of at most %d bytes without NUL for %s", flag, sandbox.MaxEnvironmentBytes, key)
	}
	return key, value, nil
}

// IsDir reports whether path leads to a directory.
func IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
