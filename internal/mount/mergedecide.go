package mount

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// action is what is to be written at a path.
type action int

const (
	keep     action = iota
	doTheirs        // the file or link of the change
	doMerged        // step.merged
	doMode          // another executable bit
	doDelete
)

// look is what the tree holds at a path.
type look struct {
	kind       kind
	executable bool
	perm       os.FileMode
	digest     string // of a regular file
	target     string // of a link
	size       int64
}

func (l look) same(other look) bool {
	return l.kind == other.kind && l.executable == other.executable && l.digest == other.digest && l.target == other.target
}

// at looks at a path of the tree, and reads a file of at most MaxFile.
func (m *merger) at(path string) (look, []byte, error) {
	n, err := m.tree.open(path)
	if err != nil {
		return look{}, nil, err
	}
	l := look{kind: n.kind, executable: n.executable, perm: n.perm, target: n.target, size: n.size}
	if n.kind != regular {
		return l, nil, nil
	}
	defer n.file.Close()
	data, err := io.ReadAll(io.LimitReader(n.file, MaxFile+1))
	if err != nil {
		return l, nil, &Error{Op: "merge", Path: path, Reason: "cannot read", Err: err}
	}
	l.size, l.digest = max(l.size, int64(len(data))), Digest(data)
	return l, data, nil
}

// decide says for each step what will be done, and touches nothing.
func (m *merger) decide(ctx context.Context, steps []*step) error {
	m.steps, m.brought = steps, broughtBy(steps)
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		why, err := m.step(ctx, s)
		if err != nil {
			return err
		}
		if why != "" {
			m.result.Conflicts = append(m.result.Conflicts, Conflict{s.path, why, s.marked})
		}
	}
	if err := m.clear(); err != nil {
		return err
	}
	for _, s := range m.steps {
		if how := s.how(); how != "" {
			m.result.Written = append(m.result.Written, Merging{s.path, how})
		}
	}
	return nil
}

// step decides one step. Without a reason it is no conflict.
func (m *merger) step(ctx context.Context, s *step) (ConflictReason, error) {
	base, _, err := m.side(s.base)
	if err != nil {
		return "", err
	}
	theirs, theirBytes, err := m.side(s.theirs)
	if err != nil {
		return "", err
	}
	if theirs.kind == symlink && !plainWay(s.path, theirs.target) {
		return LinkLeadsOut, nil
	}
	ours, ourBytes, err := m.at(s.path)
	if err != nil {
		return "", err
	}
	if ours.kind == behindLink && base.kind == absent {
		ours.kind = absent // unless the change removes that link, clear refuses it
	}
	s.ours = ours
	switch {
	case ours.kind == behindLink:
		return BehindLink, nil
	case ours.kind == unreadable:
		return OursUnread, nil
	case ours.kind == special:
		return InTheWay, nil
	case ours.kind == regular && ours.size > MaxFile:
		return OursTooLarge, nil
	case m.inRepository(s.path):
		return InRepository, nil
	case ours.same(theirs):
		m.result.There = append(m.result.There, s.path)
		return "", nil
	case ours.kind == directory && theirs.kind == absent:
		m.result.There = append(m.result.There, s.path) // no file is left there
		return "", nil
	case ours.same(base), ours.kind == directory && base.kind == absent:
		s.takeTheirs(theirs)
		return "", nil // a directory in the way is looked at by clear
	case theirs.kind == absent:
		return DeletedThere, nil
	case ours.kind == absent:
		return DeletedHere, nil
	case ours.kind == directory:
		return InTheWay, nil
	case ours.kind != regular || theirs.kind != regular:
		return OtherType, nil
	}
	return m.content(ctx, s, ourBytes, theirBytes, ours, base, theirs)
}

func (s *step) takeTheirs(theirs look) {
	s.do, s.perm = doTheirs, permission(s.ours, theirs.executable)
	if theirs.kind == absent {
		s.do = doDelete
	} else if s.ours.kind == regular && theirs.kind == regular && s.ours.digest == theirs.digest {
		s.do = doMode
	}
}

// content merges the lines of three files, and the executable bit.
func (m *merger) content(ctx context.Context, s *step, ourBytes, theirBytes []byte, ours, base, theirs look) (ConflictReason, error) {
	executable := theirs.executable
	if base.kind == regular && theirs.executable == base.executable {
		executable = ours.executable
	}
	s.perm = permission(ours, executable)
	switch was := base.kind == regular; {
	case theirs.digest == ours.digest, was && theirs.digest == base.digest: // no bytes to take
		if executable != ours.executable {
			s.do = doMode
		} else {
			m.result.There = append(m.result.There, s.path)
		}
		return "", nil
	case was && ours.digest == base.digest:
		s.do = doTheirs
		return "", nil
	}
	var baseBytes []byte
	if base.kind == regular {
		var err error
		if baseBytes, err = m.blobs.read(s.base.oid); err != nil {
			return "", err
		}
	}
	if isBinary(baseBytes) || isBinary(ourBytes) || isBinary(theirBytes) {
		return BinaryChanged, nil
	}
	if m.marks(ourBytes) {
		return BothChanged, nil // it has our markers from before: not twice
	}
	merged, conflicts, err := m.lines(ctx, s, ourBytes, baseBytes, theirBytes)
	if err != nil {
		return "", err
	}
	if !conflicts && bytes.Equal(merged, ourBytes) && executable == ours.executable {
		m.result.There = append(m.result.There, s.path)
		return "", nil
	}
	s.do, s.marked = doMerged, conflicts
	if conflicts {
		return BothChanged, nil
	}
	return "", nil
}

// marks reports whether a file holds conflict markers of this change. Git ends them
// as it finds the lines of the file to end.
func (m *merger) marks(data []byte) bool {
	end := "\n>>>>>>> " + m.name
	return bytes.Contains(data, []byte(end+"\n")) || bytes.Contains(data, []byte(end+"\r\n"))
}

// lines is git's merge of three files, on copies in a directory of ours.
func (m *merger) lines(ctx context.Context, s *step, ours, base, theirs []byte) (merged []byte, conflicts bool, err error) {
	dir, err := os.MkdirTemp(m.temp, "lines-")
	if err != nil {
		return nil, false, err
	}
	for name, data := range map[string][]byte{"ours": ours, "base": base, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, false, err
		}
	}
	var out bytes.Buffer
	err = m.git.streamN(ctx, dir, []string{"GIT_DIR=" + filepath.Join(m.temp, "git")}, nil, 8*MaxFile, func(r *bufio.Reader) error {
		_, err := io.Copy(&out, r)
		return err
	}, "merge-file", "-p", "-L", "this tree", "-L", "as it was staged", "-L", m.name, "ours", "base", "theirs")
	// The exit code counts conflicts up to 127; 255 is a failure.
	if code := exitCode(err); code > 0 && code <= 127 {
		conflicts, err = true, nil
	}
	if err != nil {
		return nil, false, &Error{Op: "merge", Path: s.path, Reason: "lines cannot be merged", Err: err}
	}
	s.merged = filepath.Join(dir, "merged")
	return out.Bytes(), conflicts, os.WriteFile(s.merged, out.Bytes(), 0o600)
}

// side is what the change has at a path.
func (m *merger) side(e *entry) (look, []byte, error) {
	if e == nil {
		return look{kind: absent}, nil, nil
	}
	data, err := m.blobs.read(e.oid)
	if err != nil {
		return look{}, nil, err
	}
	if e.mode == modeLink {
		return look{kind: symlink, target: string(data)}, data, nil
	}
	return look{kind: regular, executable: e.executable(), digest: Digest(data), size: int64(len(data))}, data, nil
}

// permission is that of what is there, with another executable bit.
func permission(ours look, executable bool) os.FileMode {
	perm := os.FileMode(0o644)
	if ours.kind == regular {
		perm = ours.perm
	}
	if !executable {
		return perm &^ 0o111
	}
	return perm | perm&0o444>>2
}

// plainWay reports whether a link at path may hold target: relative, at first up,
// then only down, never above the top and never into a repository's own files. A
// ".." after a name could climb from wherever another link leads.
func plainWay(path, target string) bool {
	if target == "" || target[0] == '/' || len(target) > maxPath || strings.IndexByte(target, 0) >= 0 || Reserved(target) {
		return false
	}
	up, down := strings.Count(path, "/"), false
	for e := range strings.SplitSeq(target, "/") {
		switch e {
		case "", ".":
		case "..":
			if up--; up < 0 || down {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

func (s *step) how() string {
	switch {
	case s.do == keep:
		return ""
	case s.do == doMode:
		return "mode"
	case s.do == doDelete:
		return "deleted"
	case s.do == doMerged:
		return "merged"
	case s.theirs.mode == modeLink:
		return "link"
	case s.base == nil || s.ours.kind == absent:
		return "added"
	}
	return "modified"
}
