package keeper

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxLog bounds the log of a session: a caller can make failures for as long as
// the session lasts.
const maxLog = 256 << 10

// journal is the log of a session: what no caller is told, and why this program
// crashed. One that cannot be written is no reason to end a session.
type journal struct {
	mu   sync.Mutex
	file *os.File // nil where there is none
	size int
}

func openJournal(path string) *journal {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &journal{}
	}
	setCrashOutput(f)
	j := &journal{file: f}
	if info, err := f.Stat(); err == nil {
		j.size = int(info.Size()) // a session that was resumed goes on in it
	}
	return j
}

// note writes an error down; nil is none.
func (j *journal) note(err error) {
	if err == nil {
		return
	}
	const most = 4096
	text := err.Error()
	line := fmt.Sprintf("%s %s\n", time.Now().UTC().Format(time.RFC3339), strings.ReplaceAll(text[:min(len(text), most)], "\n", "; "))
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.size+len(line) > maxLog {
		return
	}
	j.size += len(line)
	_, _ = j.file.WriteString(line)
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		setCrashOutput(nil)
		_ = j.file.Close()
		j.file = nil
	}
}
