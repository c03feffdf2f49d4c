package native

import (
	"bufio"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// What is kept of what a step writes: the package's own programs write it, and may
// write anything for as long as they like.
const (
	maxLine   = 200 // bytes of one line
	keptLines = 8
	// lingering is how long a step's output may stay open when its tree is dead: a
	// guest root can have hidden a process from that, which ends with the machine.
	lingering = 2 * time.Second
)

// output are the last lines of a step.
type output struct {
	done chan struct{}
	mu   sync.Mutex
	kept []string
}

// listen reads r to its end, or until last gives up on it.
func listen(r *os.File, each func(line string)) *output {
	o := &output{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		in := bufio.NewReaderSize(r, 4<<10)
		for {
			line, err := in.ReadSlice('\n')
			if text := printable(line); text != "" {
				o.mu.Lock()
				o.kept = append(o.kept, text)
				if len(o.kept) > keptLines {
					o.kept = o.kept[1:]
				}
				o.mu.Unlock()
				each(text)
			}
			if err != nil && err != bufio.ErrBufferFull {
				_, _ = io.Copy(io.Discard, r) // after a deadline this ends at once
				return
			}
		}
	}()
	return o
}

// last waits for the end of the output, which is near, and gives its last lines.
func (o *output) last(r *os.File) []string {
	_ = r.SetReadDeadline(time.Now().Add(lingering))
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, o.kept...)
}

// printable makes one bounded line of text: what a terminal would obey is gone. Of
// a line that was written over itself it is the last state.
func printable(line []byte) string {
	text := strings.ToValidUTF8(string(line), "?")
	if i := strings.LastIndexByte(strings.TrimRight(text, "\r\n"), '\r'); i >= 0 {
		text = text[i+1:]
	}
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text))
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "")
	}
	return text
}
