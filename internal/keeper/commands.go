package keeper

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Ran is one command of a session, as its log has it: twice, when it began and when
// it ended, under the same id. A log holds arguments and no value of an environment.
type Ran struct {
	ID        string            `json:"id"`
	Command   []string          `json:"argv"` // text; a long one is cut
	StartedAt sandbox.Timestamp `json:"started_at"`
	// EndedAt is empty while it runs, and for good where whoever ran it was killed.
	EndedAt     sandbox.Timestamp `json:"ended_at,omitzero"`
	Cause       string            `json:"cause,omitzero"` // as in a Run's record
	Exit        sandbox.Exit      `json:"exit,omitzero"`
	OutputBytes int64             `json:"output_bytes,omitzero"` // of both streams, where they were counted
	Refused     int64             `json:"refused,omitzero"`      // by the guard, meanwhile
}

// Bounds of the log of a session's commands: two files of maxCommands, of which the
// older goes when the newer is full, and maxArgv of one command.
const (
	commandsName = "commands"
	olderName    = "commands.old"
	maxCommands  = 128 << 10
	maxArgv      = 2 << 10
)

// NewCommandID mints the id of a command.
func NewCommandID() string { return mint("cmd_") }

// Note writes a command into the log of a session that keeps what is in it: one
// without retention keeps no log either. A command is noted when it begins, and once
// more when it has ended; the log of a session that has ended meanwhile is not made
// again. It is the caller's log of its own commands: nobody in the machine writes it.
// Errors: the operating system's.
func Note(dir string, r Record, c Ran) error {
	if !r.Keeps() {
		return nil
	}
	c.Command = argvText(c.Command)
	line, err := canonical.Encode(c)
	if err != nil {
		return err
	}
	at := placeOf(dir, r.SessionID)
	flag := 0
	if c.EndedAt == "" {
		flag = os.O_CREATE
		if info, err := os.Lstat(at.file(commandsName)); err == nil && info.Size() > maxCommands {
			if err := os.Rename(at.file(commandsName), at.file(olderName)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	f, err := os.OpenFile(at.file(commandsName), os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|flag, 0o600)
	if flag == 0 && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// One write, so that lines of two commands do not mix; and a line of its own behind
	// what a crash has torn.
	_, err = fmt.Fprintf(f, "\n%s\n", line)
	return errors.Join(err, f.Close())
}

// argvText is a command that can be encoded, of at most maxArgv bytes.
func argvText(argv []string) []string {
	var kept []string
	left := maxArgv
	for _, a := range argv {
		a = strings.ToValidUTF8(a, "\uFFFD")
		if len(a) > left {
			for left > 0 && !utf8.RuneStart(a[left]) {
				left--
			}
			return append(kept, a[:left]+"…")
		}
		kept = append(kept, a)
		left -= len(a)
	}
	return kept
}

// Commands reads the log of a session's commands, oldest first, and each once. A line
// that a crash has torn is left out.
// Errors: *sandbox.Invalid for an id that is none; the operating system's.
func Commands(dir, id string) ([]Ran, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	var text []byte
	for _, name := range []string{olderName, commandsName} {
		part, err := placeOf(dir, id).read(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		text = append(append(text, part...), '\n')
	}
	return parseCommands(string(text)), nil
}

func parseCommands(text string) []Ran {
	var all []Ran
	place := map[string]int{}
	for line := range strings.SplitSeq(text, "\n") {
		var c Ran
		if line == "" || canonical.Decode([]byte(line), &c) != nil || c.ID == "" || !c.StartedAt.Valid() || c.EndedAt != "" && !c.EndedAt.Valid() {
			continue
		}
		if i, ok := place[c.ID]; ok {
			all[i] = c
			continue
		}
		place[c.ID] = len(all)
		all = append(all, c)
	}
	return all
}

// Journal is what the keeper of a session noted: what no caller was told.
// Errors: *sandbox.Invalid for an id that is none; the operating system's.
func Journal(dir, id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	text, err := placeOf(dir, id).read(logName)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(text), err
}
