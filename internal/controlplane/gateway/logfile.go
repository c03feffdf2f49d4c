package gateway

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxLogBytes bounds one file of a LogFile; there are two at most.
const MaxLogBytes = 32 << 20

// earlier ends the name of the file that was full before.
const earlier = ".1"

// LogFile is a log of lines on the disk that does not grow without bound: whoever has
// a token writes a line for each request. A file that is full is put aside as NAME.1,
// in the place of the one before it, so that the newest 32 MiB at least are there.
//
// Concurrency: writes wait for each other. Ownership: its opener closes it.
type LogFile struct {
	path string
	most int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// OpenLog opens the log at path, mode 0600, and goes on in what is there.
// Errors: the operating system's; one for a link at path.
func OpenLog(path string) (*LogFile, error) {
	l := &LogFile{path: path, most: MaxLogBytes}
	return l, l.open()
}

func (l *LogFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write writes one line, whole into one file. A line that is longer than a file may
// be has one for itself.
// Errors: the operating system's, also where a full file cannot be put aside: a line
// that is in neither was not written.
func (l *LogFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.size > 0 && l.size+int64(len(line)) > l.most {
		if err := l.turn(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	return n, err
}

// turn puts a full file aside, if it is full: somebody else may have cut it.
func (l *LogFile) turn() error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if cut := info.Size() < l.size; cut {
		l.size = info.Size()
		return nil
	}
	if err := os.Rename(l.path, l.path+earlier); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	full := l.file
	if err := l.open(); err != nil {
		return err
	}
	return full.Close()
}

// Close closes it. The files stay.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
