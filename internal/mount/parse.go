package mount

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Modes of git tree and index entries.
const (
	modeTree      = "040000"
	modeLink      = "120000"
	modeSubmodule = "160000"
)

// entry is one line of ls-tree or ls-files.
type entry struct {
	mode  string // six octal digits
	oid   string
	stage int  // 0, or 1 to 3 for an unmerged path
	skip  bool // the index says that the file is not in the worktree
	path  string
}

func (e entry) executable() bool { return e.mode != modeLink && e.mode[3]&1 == 1 }

// known reports whether git itself makes such entries.
func (e entry) known() bool {
	switch e.mode {
	case modeTree, modeLink, modeSubmodule, "100644", "100755", "100664":
		return true
	}
	return false
}

// record reads one NUL-terminated record; io.EOF ends the stream between two.
func record(r *bufio.Reader) (string, error) {
	s, err := r.ReadString(0)
	if err == io.EOF && s != "" {
		return "", io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", err
	}
	if len(s) > 1<<16 {
		return "", errors.New("record of git is over 65536 bytes")
	}
	return s[:len(s)-1], nil
}

// records calls each for every record, at most limit of them.
func records(r *bufio.Reader, limit int, each func(string) error) error {
	for n := 0; ; n++ {
		s, err := record(r)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n >= limit {
			return ErrTooMany
		}
		if err := each(s); err != nil {
			return err
		}
	}
}

// parseTree reads a record of "ls-tree -r -t -z":
// <mode> SP <type> SP <oid> TAB <path>.
func parseTree(s string) (entry, error) {
	meta, path, ok := strings.Cut(s, "\t")
	f := strings.Split(meta, " ")
	if !ok || len(f) != 3 || !validMode(f[0]) || !validOID(f[2]) || path == "" {
		return entry{}, fmt.Errorf("record of ls-tree: want mode, type, id and path, got %q", clip(s))
	}
	e := entry{mode: f[0], oid: f[2], path: path}
	want := "blob"
	switch e.mode {
	case modeTree:
		want = "tree"
	case modeSubmodule:
		want = "commit"
	}
	if f[1] != want {
		return entry{}, fmt.Errorf("record of ls-tree: mode %s wants %s, got %q", e.mode, want, clip(f[1]))
	}
	return e, nil
}

// parseIndex reads a record of "ls-files -s -t -z":
// <tag> SP <mode> SP <oid> SP <stage> TAB <path>.
func parseIndex(s string) (entry, error) {
	meta, path, ok := strings.Cut(s, "\t")
	f := strings.Split(meta, " ")
	if !ok || len(f) != 4 || len(f[0]) != 1 || !validMode(f[1]) || !validOID(f[2]) || path == "" ||
		len(f[3]) != 1 || f[3] < "0" || f[3] > "3" {
		return entry{}, fmt.Errorf("record of ls-files: want tag, mode, id, stage and path, got %q", clip(s))
	}
	return entry{mode: f[1], oid: f[2], stage: int(f[3][0] - '0'), skip: f[0] == "S" || f[0] == "s", path: path}, nil
}

func validMode(s string) bool {
	return len(s) == 6 && strings.Trim(s, "01234567") == ""
}

func validOID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func clip(s string) string { return s[:min(len(s), 120)] }

// maxPointer is the size past which the LFS specification says that a file is
// not a pointer.
const maxPointer = 1024

// lfsPointer reads a Git LFS pointer: the sha256 and the size of the content
// that it stands for.
func lfsPointer(data []byte) (digest string, size int64, ok bool) {
	const version = "version https://git-lfs.github.com/spec/v1\n"
	if len(data) >= maxPointer || !bytes.HasPrefix(data, []byte(version)) {
		return "", 0, false
	}
	size = -1
	for line := range strings.SplitSeq(string(data[len(version):]), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "oid":
			hex, found := strings.CutPrefix(value, "sha256:")
			if !found || len(hex) != 64 || !validOID(hex) || digest != "" {
				return "", 0, false
			}
			digest = value
		case "size":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil || size >= 0 {
				return "", 0, false
			}
			size = int64(n)
		}
	}
	return digest, size, digest != "" && size >= 0
}

func isLFSPointer(data []byte) bool {
	_, _, ok := lfsPointer(data)
	return ok
}

// setting is one value of a configuration file.
type setting struct{ key, value string }

// parseConfig reads "config --list -z": <key> LF <value> NUL, or <key> NUL.
func parseConfig(data []byte) []setting {
	var all []setting
	for s := range strings.SplitSeq(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		key, value, ok := strings.Cut(s, "\n")
		if !ok {
			value = "true"
		}
		all = append(all, setting{key, value})
	}
	return all
}
