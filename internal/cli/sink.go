package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/cli/argument"
)

// sink is a file that appears whole or not at all: it is written beside its
// name and renamed by commit. A name that is there and is no regular file (a
// device, a pipe) is written to as it is.
type sink struct {
	path   string
	file   *os.File
	temp   string // "" when file is the target itself
	closed bool
}

// checkSink refuses a path that cannot become a file, before any work.
func checkSink(flag, path string) error {
	if path == "" {
		return argument.Unexpected(flag, "a file name, or - for standard output", path)
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return argument.Unexpected(flag, "a file and not a directory", path)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
	}
	dir := filepath.Dir(path)
	if !argument.IsDir(dir) || unix.Access(dir, unix.W_OK) != nil {
		return argument.Unexpected(flag, "a file in a directory that exists and can be written", path)
	}
	return nil
}

// Write makes the file when there is something to write.
func (s *sink) Write(p []byte) (int, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	return s.file.Write(p)
}

func (s *sink) open() error {
	if s.file != nil {
		return nil
	}
	target, err := filepath.EvalSymlinks(s.path)
	if errors.Is(err, os.ErrNotExist) {
		target, err = s.path, nil
	}
	if err != nil {
		return err
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		s.file, err = os.OpenFile(target, os.O_WRONLY, 0)
		return err
	}
	s.path = target
	if s.file, err = os.CreateTemp(filepath.Dir(target), ".checkfu-"); err != nil {
		return err
	}
	s.temp = s.file.Name()
	return nil
}

// commit makes what was written appear; without any Write an empty file.
func (s *sink) commit() error {
	if err := s.open(); err != nil {
		return err
	}
	s.closed = true
	if s.temp == "" {
		return s.file.Close()
	}
	err := errors.Join(s.file.Chmod(0o644), s.file.Close())
	if err == nil {
		err = os.Rename(s.temp, s.path)
	}
	if err != nil {
		os.Remove(s.temp)
	}
	return err
}

// discard removes what was written, unless it was committed.
func (s *sink) discard() {
	if s.file == nil || s.closed {
		return
	}
	s.closed = true
	s.file.Close()
	if s.temp != "" {
		os.Remove(s.temp)
	}
}

// opened reports whether something was written.
func (s *sink) opened() bool { return s.file != nil }

var _ io.Writer = (*sink)(nil)
