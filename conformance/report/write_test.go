package report

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
)

// names are what stands in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	for _, e := range must(os.ReadDir(dir))(t) {
		out = append(out, e.Name())
	}
	return out
}

var all = []string{EvidenceFile, JUnitFile, MarkdownFile, TranscriptFile}

func TestWriteDirAndReadDir(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "made", "on the way")
	for range 2 { // the second time over what is there
		r, tr := poisoned(), chain(t, 3)
		if err := WriteDir(dir, &r, tr); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, all) {
			t.Errorf("the directory holds %v", got)
		}
		for _, name := range all {
			if mode := must(os.Stat(filepath.Join(dir, name)))(t).Mode(); mode != 0o644 {
				t.Errorf("%s has mode %v", name, mode)
			}
		}
		back := must(ReadDir(dir))(t)
		if back.TranscriptDigest != tr.Head() || r.TranscriptDigest != tr.Head() {
			t.Errorf("transcript %s", back.TranscriptDigest)
		}
		if got := must(os.ReadFile(filepath.Join(dir, EvidenceFile)))(t); !bytes.Equal(got, must(Encode(r))(t)) {
			t.Error("evidence.json is not what Encode gives")
		}
	}
}

func TestWriteDirWithoutATranscript(t *testing.T) {
	dir := t.TempDir()
	r := sample()
	r.TranscriptDigest = "sha256:" + strings.Repeat("0", 64) // of an earlier run
	if err := WriteDir(dir, &r, nil); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, all[:3]) {
		t.Errorf("the directory holds %v", got)
	}
	if back := must(ReadDir(dir))(t); back.TranscriptDigest != "" {
		t.Errorf("transcript %s", back.TranscriptDigest)
	}
}

func TestWriteDirRefusesAContradiction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	r := sample()
	r.Verdict = Partial
	if err := WriteDir(dir, &r, nil); err == nil {
		t.Error("taken")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

// In a directory that others may write to, links wait at the final names and at
// the first temporary name. None is followed.
func TestWriteDirFollowsNoLink(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	guessed := ".evidence.json." + strings.Repeat("61", 8)
	for _, name := range append([]string{guessed}, all...) {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root := must(os.OpenRoot(dir))(t)
	defer root.Close()
	random := strings.NewReader(strings.Repeat("a", 8) + "bbbbbbbb")
	if err := place(root, []output{{name: EvidenceFile, content: []byte("theirs")}}, random); err != nil {
		t.Fatal(err)
	}
	if got := string(must(os.ReadFile(victim))(t)); got != "mine" {
		t.Errorf("the victim's file holds %q", got)
	}
	info := must(os.Lstat(filepath.Join(dir, EvidenceFile)))(t)
	if !info.Mode().IsRegular() || must(os.Stat(victim))(t).Mode() != 0o600 {
		t.Errorf("evidence.json is a %v", info.Mode())
	}
	if got := names(t, dir); !slices.Equal(got, append([]string{guessed}, all...)) {
		t.Errorf("the directory holds %v", got)
	}
	// Where every name is taken it is an error, and what is there stays.
	err := place(root, []output{{name: EvidenceFile, content: []byte("x")}}, strings.NewReader(strings.Repeat("a", 8*20)))
	if !errors.Is(err, fs.ErrExist) || string(must(os.ReadFile(filepath.Join(dir, EvidenceFile)))(t)) != "theirs" {
		t.Errorf("got %v", err)
	}
}

// A failure in the middle leaves neither a temporary nor half a file, and what
// stood there before stands there still.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64k,nr_inodes=16"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	small := sample()
	if err := WriteDir(dir, &small, nil); err != nil {
		t.Fatal(err)
	}
	before := must(os.ReadFile(filepath.Join(dir, EvidenceFile)))(t)
	large := sample()
	for range 1000 {
		large.Limits = append(large.Limits, strings.Repeat("x", 500))
	}
	err := WriteDir(dir, &large, chain(t, 3))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, all[:3]) {
		t.Errorf("the directory holds %v", got)
	}
	if !bytes.Equal(must(os.ReadFile(filepath.Join(dir, EvidenceFile)))(t), before) {
		t.Error("the evidence that was there has changed")
	}
}

func TestWriteDirErrorsNameThePath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	blocked := t.TempDir()
	if err := os.Mkdir(filepath.Join(blocked, MarkdownFile), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{file: file, filepath.Join(file, "below"): file, blocked: MarkdownFile} {
		r := sample()
		if err := WriteDir(dir, &r, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
	if got := names(t, blocked); slices.ContainsFunc(got, func(n string) bool { return n[0] == '.' }) || slices.Contains(got, EvidenceFile) {
		t.Errorf("the directory holds %v", got)
	}
}

func TestWhatReadDirRefuses(t *testing.T) {
	inDir := func(name string, f func(path string) error) func(string) error {
		return func(dir string) error { return f(filepath.Join(dir, name)) }
	}
	edit := func(old, new string) func(string) error {
		return func(path string) error {
			data, err := os.ReadFile(path)
			if err == nil && !bytes.Contains(data, []byte(old)) {
				err = errors.New("nothing to change")
			}
			return errors.Join(err, os.WriteFile(path, bytes.Replace(data, []byte(old), []byte(new), 1), 0o600))
		}
	}
	// forged is an edit by somebody who writes the digest anew.
	forged := func(old, new string) func(string) error {
		return func(path string) error {
			data, err := os.ReadFile(path)
			var r Report
			err = errors.Join(err, canonical.Decode(bytes.Replace(data, []byte(old), []byte(new), 1), &r))
			again, encodeErr := Encode(r)
			return errors.Join(err, encodeErr, os.WriteFile(path, again, 0o600))
		}
	}
	fifo := func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }
	outside := func(path string) error {
		to := filepath.Join(t.TempDir(), "x")
		return errors.Join(os.Rename(path, to), os.Symlink(to, path))
	}
	for _, c := range []struct {
		name        string
		change      func(dir string) error
		file, field string
		line        int64
	}{
		{"untouched", func(string) error { return nil }, "", "", 0},
		{"a verdict", inDir(EvidenceFile, edit(`"verdict":"conformant"`, `"verdict":"partial"`)), EvidenceFile, "verdict", 0},
		{"a status", inDir(EvidenceFile, edit(`"status":"pass"`, `"status":"passed"`)), EvidenceFile, "cases[0].checks[0].status", 0},
		{"a line", inDir(TranscriptFile, edit(`\"n\":1`, `\"n\":9`)), TranscriptFile, "", 2},
		{"the last line", inDir(TranscriptFile, edit(`\"n\":2`, `\"n\":9`)), TranscriptFile, "", 3},
		{"no transcript", inDir(TranscriptFile, os.Remove), TranscriptFile, "", 0},
		{"the digest", inDir(EvidenceFile, edit(`"transcript_sha256":"sha256:`, `"transcript_sha256":"sha256:0`)), EvidenceFile, "transcript_sha256", 0},
		{"a title", inDir(EvidenceFile, edit(`"title":"`, `"title":"x`)), EvidenceFile, "content_sha256", 0},
		{"a pipe for the evidence", inDir(EvidenceFile, fifo), EvidenceFile, "", 0},
		{"a pipe for the transcript", inDir(TranscriptFile, fifo), TranscriptFile, "", 0},
		{"a directory", inDir(EvidenceFile, func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }), EvidenceFile, "", 0},
		{"more than anyone reads", inDir(EvidenceFile, func(p string) error { return os.Truncate(p, MaxFileBytes+1) }), EvidenceFile, "", 0},
		{"a row's lines", inDir(EvidenceFile, forged(`"transcript":[1,2]`, `"transcript":[1,4]`)), EvidenceFile, "transcript of stage-seal-execute", 0},
	} {
		dir := t.TempDir()
		r := sample()
		if err := errors.Join(WriteDir(dir, &r, chain(t, 3)), c.change(dir)); err != nil {
			t.Fatal(c.name, err)
		}
		_, err := ReadDir(dir)
		if c.file == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		e, ok := errors.AsType[*InvalidError](err)
		if !ok || e.File != c.file || e.Field != c.field || e.Line != c.line {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	dir := t.TempDir()
	r := sample()
	if err := errors.Join(WriteDir(dir, &r, nil), outside(filepath.Join(dir, EvidenceFile))); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadDir(dir); err == nil {
		t.Error("a link out of the directory was followed")
	}
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "gone")} {
		if _, err := ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
}
