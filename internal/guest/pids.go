package guest

import (
	"bytes"
	"io"
	"os"
	"strconv"
)

// printPids writes, one per line, every process whose supplementary groups
// hold group.
func printPids(w io.Writer, group string) error {
	if id, err := strconv.ParseUint(group, 10, 32); err != nil || strconv.FormatUint(id, 10) != group {
		return &WireError{Field: "GROUP", Want: "a decimal group id", Got: group}
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return err
	}
	names, err := proc.Readdirnames(-1)
	proc.Close()
	if err != nil {
		return err
	}
	var out []byte
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		status, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			continue // ended meanwhile
		}
		if holdsGroup(status, group) {
			out = append(append(out, name...), '\n')
		}
	}
	_, err = w.Write(out)
	return err
}

// holdsGroup says whether the Groups line of a /proc/PID/status holds exactly
// group. A process names itself in the Name line; the kernel escapes newlines
// there, so a line that begins with "Groups:" is the kernel's.
func holdsGroup(status []byte, group string) bool {
	for line := range bytes.Lines(status) {
		list, ok := bytes.CutPrefix(line, []byte("Groups:"))
		if !ok {
			continue
		}
		for _, field := range bytes.Fields(list) {
			if string(field) == group {
				return true
			}
		}
	}
	return false
}
