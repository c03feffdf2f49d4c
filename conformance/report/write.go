package report

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// output is one file of a run.
type output struct {
	name    string
	content []byte
	temp    string // where it stands until all are there
}

// WriteDir writes transcript.ndjson (unless t is nil), junit.xml, report.md and
// evidence.json into dir, which is made when it is missing, and puts the
// transcript's digest into r. Each file is there whole or not at all: all are
// written and synced under names that nobody can guess, and only then renamed,
// evidence.json last. A link that stands at one of the four names is replaced,
// not followed.
// Errors: *InvalidError for a report that contradicts itself, before anything is
// written; else the file system's, which names the file. No temporary is left.
func WriteDir(dir string, r *Report, t *Transcript) error {
	r.TranscriptDigest = ""
	var files []output
	if t != nil {
		r.TranscriptDigest = t.Head()
		files = append(files, output{name: TranscriptFile, content: t.Encode()})
	}
	evidence, err := Encode(*r)
	if err != nil {
		return err
	}
	junit, err := JUnit(*r)
	if err != nil {
		return err
	}
	files = append(files,
		output{name: JUnitFile, content: junit},
		output{name: MarkdownFile, content: Markdown(*r)},
		output{name: EvidenceFile, content: evidence})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("the report's directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("the report's directory: %w", err)
	}
	defer root.Close()
	return place(root, files, rand.Reader)
}

// place writes all files or says which one failed.
func place(root *os.Root, files []output, random io.Reader) (err error) {
	defer func() {
		for _, f := range files {
			if f.temp != "" {
				err = errors.Join(err, root.Remove(f.temp))
			}
		}
	}()
	for i := range files {
		if err := files[i].write(root, random); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(root.Name(), files[i].name), err)
		}
	}
	for i := range files {
		if err := root.Rename(files[i].temp, files[i].name); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(root.Name(), files[i].name), err)
		}
		files[i].temp = ""
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// write puts the content under a temporary name.
func (f *output) write(root *os.Root, random io.Reader) error {
	file, err := f.create(root, random)
	if err != nil {
		return err
	}
	_, err = file.Write(f.content)
	// Chmod, because the mode of a new file is subject to the umask.
	return errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
}

// create makes the temporary file. In a directory that others may write to, a
// link to a file of the victim can wait at any name that can be guessed: O_EXCL
// refuses it, and another name is tried.
func (f *output) create(root *os.Root, random io.Reader) (*os.File, error) {
	var err error
	for range 16 {
		var name [8]byte
		if _, err := io.ReadFull(random, name[:]); err != nil {
			return nil, err
		}
		temp := "." + f.name + "." + hex.EncodeToString(name[:])
		var file *os.File
		if file, err = root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.temp = temp
			return file, nil
		} else if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return nil, err
}
