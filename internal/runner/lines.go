package runner

import (
	"bytes"
	"io"
	"strconv"
	"strings"
)

// lineCounter passes a patch on and counts its lines. It follows the sizes
// that each hunk states, so that a line of a file that looks like a header
// ("--- x") is counted as what it is.
type lineCounter struct {
	to    io.Writer
	lines Lines
	size  int64

	line     []byte // the start of the line that is not complete
	old, new int64  // lines that the hunk still holds of each side
}

// maxHeader bounds what is kept of one line; hunk headers are far shorter.
const maxHeader = 128

func (c *lineCounter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.size += int64(n)
	for rest := p[:n]; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		part := rest
		if end >= 0 {
			part = rest[:end]
		}
		if room := maxHeader - len(c.line); room > 0 {
			c.line = append(c.line, part[:min(room, len(part))]...)
		}
		if end < 0 {
			break
		}
		c.count(c.line)
		c.line = c.line[:0]
		rest = rest[end+1:]
	}
	return n, err
}

func (c *lineCounter) count(line []byte) {
	if c.old <= 0 && c.new <= 0 {
		c.old, c.new = hunk(string(line))
		return
	}
	first := byte(' ') // git writes an empty context line as such or with its blank
	if len(line) > 0 {
		first = line[0]
	}
	switch first {
	case '+':
		c.new--
		c.lines.Added++
	case '-':
		c.old--
		c.lines.Deleted++
	case ' ':
		c.old--
		c.new--
	}
}

// hunk reads "@@ -old[,n] +new[,n] @@"; another line holds nothing.
func hunk(line string) (old, new int64) {
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[0] != "@@" || fields[3] != "@@" {
		return 0, 0
	}
	return span(fields[1]), span(fields[2])
}

func span(s string) int64 {
	_, n, ok := strings.Cut(s, ",")
	if !ok {
		return 1
	}
	v, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
