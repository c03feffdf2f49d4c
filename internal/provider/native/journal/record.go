package journal

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/sandbox"
)

// schema is the first line of a record.
const schema = "checkfu.active-write.v1"

// Token names one pause of a workload: 32 lower-case hex characters, or "".
type Token string

const (
	noToken   = "--------------------------------"
	stateSize = len(sandbox.JournalRolledBack) // the longest of the four
	// maxRecord bounds what is read: 1,024 targets of 4,096 bytes stay below it.
	maxRecord = 8 << 20
	maxFiles  = sandbox.MaxReadFiles
)

// record is what a journal says. Its form is text of fixed widths, so that each
// change can be made in place:
//
//	checkfu.active-write.v1
//	STATE, padded to 11
//	PAUSE, a token or 32 dashes
//	INHERITED, likewise: the pause of a predecessor that this one took over
//	0, or 1 once what follows of each target is known
//	TREE, relative to the home
//	BODY OLD MISSING PATH, for each target: 16, 16 and 4 hex digits, and base64
type record struct {
	state     sandbox.JournalState
	pause     Token
	inherited Token
	planned   bool
	tree      string
	files     []file
}

// file is one target.
type file struct {
	path    string // relative to the tree, raw bytes
	body    uint64 // inode of what is published
	old     uint64 // inode of what stood there, 0 for nothing
	missing int    // how many of its parents publication makes, the nearest ones
}

// Where in a record its changing parts begin.
const (
	stateAt   = len(schema) + 1
	pauseAt   = stateAt + stateSize + 1
	plannedAt = pauseAt + 2*(len(noToken)+1)
)

// Error says which field of a journal cannot be true.
type Error struct {
	Field    string
	Expected string
	Got      string
}

// Error prints the three.
func (e *Error) Error() string {
	return fmt.Sprintf("journal: %s: expected %s, got %q", e.Field, e.Expected, e.Got)
}

func wrong(field, expected, got string) error {
	return &Error{field, expected, got[:min(len(got), 200)]}
}

func (s Token) text() string {
	if s == "" {
		return noToken
	}
	return string(s)
}

func stateText(s sandbox.JournalState) string {
	return fmt.Sprintf("%-*s\n", stateSize, s)
}

// head is everything before the targets, pauseText and planText parts of it.
func (r record) head() string {
	return schema + "\n" + stateText(r.state) + r.pauseText() + r.plannedText() + r.tree + "\n"
}

func (r record) pauseText() string { return r.pause.text() + "\n" + r.inherited.text() + "\n" }

func (r record) plannedText() string {
	if r.planned {
		return "1\n"
	}
	return "0\n"
}

// plan is the part that says which files are which.
func (r record) plan() []byte {
	var b []byte
	for _, f := range r.files {
		b = fmt.Appendf(b, "%016x %016x %04x %s\n", f.body, f.old, f.missing, base64.StdEncoding.EncodeToString([]byte(f.path)))
	}
	return b
}

func (r record) encode() []byte { return append([]byte(r.head()), r.plan()...) }

// parse reads a record. What it takes, encode gives back byte for byte.
// Errors: *Error.
func parse(text []byte) (record, error) {
	if len(text) > maxRecord {
		return record{}, wrong("length", "at most "+strconv.Itoa(maxRecord), strconv.Itoa(len(text)))
	}
	whole, ended := strings.CutSuffix(string(text), "\n")
	lines := strings.Split(whole, "\n")
	const head = 6
	switch {
	case !ended || len(lines) <= head || len(lines) > head+maxFiles:
		return record{}, wrong("lines", "6, and 1 to 1024 targets", strconv.Itoa(len(lines)))
	case lines[0] != schema:
		return record{}, wrong("schema", schema, lines[0])
	case lines[4] != "0" && lines[4] != "1":
		return record{}, wrong("planned", "0 or 1", lines[4])
	case !filepath.IsLocal(lines[5]) || filepath.Clean(lines[5]) != lines[5]:
		return record{}, wrong("tree", "a path below the home", lines[5])
	}
	r := record{state: sandbox.JournalState(strings.TrimRight(lines[1], " ")), planned: lines[4] == "1", tree: lines[5]}
	if len(lines[1]) != stateSize || !r.state.Valid() {
		return record{}, wrong("state", "one of the four", lines[1])
	}
	var err error
	if r.pause, err = token("pause", lines[2]); err != nil {
		return record{}, err
	}
	if r.inherited, err = token("inherited", lines[3]); err != nil {
		return record{}, err
	}
	for n, line := range lines[head:] {
		f, err := target("targets["+strconv.Itoa(n)+"]", line)
		if err != nil {
			return record{}, err
		}
		r.files = append(r.files, f)
	}
	return r, nil
}

func token(field, text string) (Token, error) {
	switch {
	case text == noToken:
		return "", nil
	case len(text) != len(noToken) || strings.Trim(text, "0123456789abcdef") != "":
		return "", wrong(field, "32 hex characters or dashes", text)
	}
	return Token(text), nil
}

func target(field, line string) (f file, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 4 || len(parts[0]) != 16 || len(parts[1]) != 16 || len(parts[2]) != 4 {
		return f, wrong(field, "inode, inode, count and path", line)
	}
	var numbers [3]uint64
	for i, digits := range parts[:3] {
		if numbers[i], err = strconv.ParseUint(digits, 16, 64); err != nil || strings.ToLower(digits) != digits {
			return f, wrong(field, "lower-case hex digits", digits)
		}
	}
	path, err := base64.StdEncoding.Strict().DecodeString(parts[3])
	if err != nil || strings.ContainsAny(parts[3], "\r\n") {
		return f, wrong(field, "base64", parts[3])
	}
	f = file{path: string(path), body: numbers[0], old: numbers[1], missing: int(numbers[2])}
	if _, err := contain.Rel(f.path); err != nil {
		return f, wrong(field, "a path below the tree", f.path)
	}
	if parents := strings.Count(f.path, "/"); f.missing > parents {
		return f, wrong(field, "at most "+strconv.Itoa(parents)+" missing parents", parts[2])
	}
	return f, nil
}
