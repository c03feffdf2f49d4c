package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// MaxFileBytes is the longest evidence.json or transcript.ndjson that ReadDir
// takes.
const MaxFileBytes = 256 << 20

// ReadDir reads the evidence in dir and checks its transcript against it.
// Nothing outside of dir is read, whatever links are in it.
// Errors: *InvalidError for what is wrong with a file, also for a transcript
// that the evidence names and that is not there; the file system's otherwise,
// fs.ErrNotExist where there is no evidence at all.
func ReadDir(dir string) (Report, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Report{}, err
	}
	defer root.Close()
	data, err := readFile(root, EvidenceFile)
	if err != nil {
		return Report{}, err
	}
	r, err := Decode(data)
	if err != nil || r.TranscriptDigest == "" {
		return r, err
	}
	transcript, err := readFile(root, TranscriptFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, &InvalidError{File: TranscriptFile, Expected: "the file whose digest the evidence names", Got: "no such file"}
	} else if err != nil {
		return Report{}, err
	}
	lines, err := verifyTranscript(bytes.NewReader(transcript), r.TranscriptDigest)
	if err != nil {
		return Report{}, err
	}
	for _, row := range r.Rows() {
		if t := row.Transcript; len(t) == 2 && t[1] > lines {
			return Report{}, &InvalidError{EvidenceFile, 0, "transcript of " + row.ID,
				fmt.Sprintf("a line of the %d in the transcript", lines), strconv.FormatInt(t[1], 10)}
		}
	}
	return r, nil
}

// readFile reads a regular file. It does not wait for one that is not: a pipe
// at this name would never end.
func readFile(root *os.Root, name string) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &InvalidError{File: name, Expected: "a regular file", Got: info.Mode().Type().String()}
	}
	if info.Size() > MaxFileBytes {
		return nil, &InvalidError{File: name, Expected: fmt.Sprintf("at most %d bytes", MaxFileBytes), Got: "more"}
	}
	return io.ReadAll(io.LimitReader(file, info.Size())) // not what a writer adds meanwhile
}
