package mount

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

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

// lsTree lists a tree: the trees in it in one list, all else in the other.
func (r *repository) lsTree(ctx context.Context, root string) (trees, files []entry, err error) {
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
	}, "ls-tree", "-r", "-t", "-z", "--full-tree", root)
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
	limit := MaxEntries
	if ignored {
		limit *= 10 // none of them is staged
	}
	err = r.git.stream(ctx, r.work, env, nil, func(out *bufio.Reader) error {
		return records(out, limit, func(s string) error {
			paths = append(paths, s)
			return nil
		})
	}, args...)
	return paths, err
}
