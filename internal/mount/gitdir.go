package mount

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// packLimit keeps a pack below MaxFile, with room for what git adds.
const packLimit = "15m"

// stageGitDir adds the .git of the mount: one commit with its trees and
// blobs, a shallow mark where it has parents, and an index in which the user's
// own staged and unstaged changes show as they do outside.
func (s *stager) stageGitDir(ctx context.Context) error {
	dir := filepath.Join(s.p.temp, "inside")
	if err := emptyGitDir(dir, nil); err != nil {
		return err
	}
	absent, err := s.pack(ctx, dir)
	if err != nil {
		return err
	}
	if err := s.writeRefs(dir, absent); err != nil {
		return err
	}
	if err := s.writeIndex(ctx, dir); err != nil {
		return err
	}
	return s.addGitFiles(dir)
}

// pack copies the objects into packs of at most MaxFile. It reports whether a
// blob that the commit or the index names had to stay out.
func (s *stager) pack(ctx context.Context, dir string) (absent bool, err error) {
	want := map[string]bool{}
	if s.root != "" {
		want[s.p.Commit], want[s.root] = true, true
	}
	for _, e := range s.trees {
		want[e.oid] = true
	}
	for _, list := range [][]entry{s.head, s.index} {
		for _, e := range list {
			if e.mode == modeSubmodule {
				continue
			}
			if size, ok := s.sizes[e.oid]; !ok || size > MaxFile {
				absent = true
				continue
			}
			want[e.oid] = true
		}
	}
	if len(want) == 0 {
		return absent, nil
	}
	var in strings.Builder
	for oid := range want {
		in.WriteString(oid + "\n")
	}
	base := filepath.Join(dir, "objects", "pack", "pack")
	if _, err := s.r.git.output(ctx, s.r.view, s.r.env, strings.NewReader(in.String()),
		"-c", "pack.packSizeLimit="+packLimit, "-c", "pack.writeReverseIndex=false",
		"pack-objects", "-q", "--window=0", "--threads=1", base); err != nil {
		return false, err
	}
	dropped, err := s.dropLargePacks(ctx, dir)
	return absent || dropped, err
}

// dropLargePacks removes packs over MaxFile. git puts an object that does not
// fit into a pack of its own, so each holds one blob that does not compress.
func (s *stager) dropLargePacks(ctx context.Context, dir string) (bool, error) {
	packs, err := filepath.Glob(filepath.Join(globEscape(dir), "objects", "pack", "*.pack"))
	if err != nil {
		return false, err
	}
	gone := map[string]bool{}
	for _, pack := range packs {
		st, err := os.Stat(pack)
		if err != nil {
			return false, err
		}
		if st.Size() <= MaxFile {
			continue
		}
		index := strings.TrimSuffix(pack, ".pack") + ".idx"
		if err := s.packed(ctx, index, gone); err != nil {
			return false, err
		}
		for _, name := range []string{pack, index} {
			if err := os.Remove(name); err != nil {
				return false, err
			}
		}
	}
	if len(gone) == 0 {
		return false, nil
	}
	for _, e := range append(s.trees, entry{oid: s.root}, entry{oid: s.p.Commit}) {
		if gone[e.oid] {
			return false, fmt.Errorf("history does not fit into packs of %d bytes", MaxFile)
		}
	}
	named := map[string]bool{}
	for _, list := range [][]entry{s.head, s.index} {
		for _, e := range list {
			if gone[e.oid] && !named[e.path] && !s.hidden[e.path] {
				named[e.path] = true
				s.leave(e.path, NoHistory)
			}
		}
	}
	return true, nil
}

// packed adds the ids in a pack's index to set.
func (s *stager) packed(ctx context.Context, index string, set map[string]bool) error {
	f, err := os.Open(index)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.r.git.stream(ctx, s.r.view, s.r.env, f, func(r *bufio.Reader) error {
		for {
			line, err := r.ReadString('\n')
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			if f := strings.Fields(line); len(f) > 1 {
				set[f[1]] = true
			}
		}
	}, "show-index", "--object-format="+s.r.format)
}

func (s *stager) writeRefs(dir string, absent bool) error {
	config := configFile(s.r.format, s.r.eol)
	if absent {
		// A promisor without an address: git then accepts that a blob of the
		// commit is not here, and can still commit inside; it can fetch nothing.
		config = promisorConfig(s.r.format, s.r.eol)
		packs, err := filepath.Glob(filepath.Join(globEscape(dir), "objects", "pack", "*.pack"))
		if err != nil {
			return err
		}
		for _, pack := range packs {
			if err := os.WriteFile(strings.TrimSuffix(pack, ".pack")+".promisor", nil, 0o600); err != nil {
				return err
			}
		}
	}
	files := map[string]string{"config": string(config) + insideIdentity}
	switch {
	case s.p.Commit == "":
		files["HEAD"] = "ref: refs/heads/" + s.r.branch + "\n"
	case s.r.branch == "":
		files["HEAD"] = s.p.Commit + "\n"
	default:
		files["HEAD"] = "ref: refs/heads/" + s.r.branch + "\n"
		files["refs/heads/"+s.r.branch] = s.p.Commit + "\n"
	}
	if s.parent {
		files["shallow"] = s.p.Commit + "\n"
	}
	// Only files are staged, and git wants both directories.
	if len(files) < 3 || s.r.branch == "" {
		files["refs/heads/.keep"] = ""
	}
	files["objects/info/.keep"] = ""
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// insideIdentity lets a command commit inside. The commits end with the
// machine; the user's own name would be a needless thing to hand out.
const insideIdentity = "[user]\n\tname = Checkfu sandbox\n\temail = sandbox@checkfu.invalid\n"

func promisorConfig(format string, core []setting) []byte {
	config := strings.Replace(string(configFile(format, core)), "repositoryformatversion = 0", "repositoryformatversion = 1", 1)
	return []byte(config + "[extensions]\n\tpartialclone = absent\n[remote \"absent\"]\n\tpromisor = true\n")
}

// writeIndex makes the index: the commit, then what the user's index has
// different, then the marks that keep git from looking for what is not there.
func (s *stager) writeIndex(ctx context.Context, dir string) error {
	env := []string{"GIT_DIR=" + dir, "GIT_WORK_TREE=" + filepath.Join(s.r.view, "empty")}
	run := func(stdin string, args ...string) error {
		_, err := s.r.git.output(ctx, s.r.view, env, strings.NewReader(stdin), args...)
		return err
	}
	if s.p.Commit != "" {
		if err := run("", "read-tree", s.p.Commit); err != nil {
			return err
		}
	}
	if info := s.indexInfo(); info != "" {
		if err := run(info, "update-index", "-z", "--index-info"); err != nil {
			return err
		}
	}
	if len(s.hidden) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, e := range s.listed() {
		known[e.path] = e.stage == 0
	}
	var marks strings.Builder
	for path := range s.hidden {
		if known[path] && !Reserved(path) {
			marks.WriteString(path + "\x00")
		}
	}
	return run(marks.String(), "update-index", "-z", "--skip-worktree", "--stdin")
}

func (s *stager) listed() []entry {
	if s.index != nil {
		return s.index
	}
	return s.head
}

// indexInfo is what update-index --index-info has to be told.
func (s *stager) indexInfo() string {
	if s.index == nil {
		return ""
	}
	head := make(map[string]entry, len(s.head))
	for _, e := range s.head {
		head[e.path] = e
	}
	var set strings.Builder
	for _, e := range s.index {
		h, ok := head[e.path]
		delete(head, e.path)
		if ok && e.stage == 0 && h.mode == e.mode && h.oid == e.oid || Reserved(e.path) {
			continue
		}
		if ok && e.stage != 0 {
			fmt.Fprintf(&set, "0 %s\t%s\x00", zeroID(s.r.format), e.path)
		}
		fmt.Fprintf(&set, "%s %s %d\t%s\x00", e.mode, e.oid, e.stage, e.path)
	}
	var gone strings.Builder
	for path := range head {
		fmt.Fprintf(&gone, "0 %s\t%s\x00", zeroID(s.r.format), path)
	}
	// Removals first: a file may have become a directory.
	return gone.String() + set.String()
}

func zeroID(format string) string {
	if format == "sha256" {
		return strings.Repeat("0", 64)
	}
	return strings.Repeat("0", 40)
}

func (s *stager) addGitFiles(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		path := ".git/" + filepath.ToSlash(rel)
		if len(data) > MaxFile {
			return fmt.Errorf("%s does not fit into %d bytes", path, MaxFile)
		}
		s.p.add(File{Path: path, Size: int64(len(data)), Digest: Digest(data),
			open: func() (io.ReadCloser, error) { return os.Open(name) }})
		return nil
	})
}
