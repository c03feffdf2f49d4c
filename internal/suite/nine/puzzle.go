package nine

import (
	"fmt"
	"strings"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// puzzle is a script of which nobody knows the output who does not run it: its
// form, its numbers and its words are drawn anew each time. It prints one line.
func puzzle(t *probe.T) (script, answer string) {
	first, second := t.Nonce(), t.Nonce()
	left, right, count := between(t, 0, 99), between(t, 0, 99), between(t, 2, 9)
	var data string
	switch between(t, 0, 2) {
	case 0:
		script = fmt.Sprintf("if test %d -lt %d; then echo %s; else echo %s; fi", left, right, first, second)
		data = second
		if left < right {
			data = first
		}
		data += "\n"
	case 1:
		script = fmt.Sprintf(`seq %d | while read n; do echo %s$n; done`, count, first)
		for n := range count {
			data += first + decimal(int64(n+1)) + "\n"
		}
	default:
		script = fmt.Sprintf("test %d -ge %d && echo %s || echo %s%s", left, right, first, first, second)
		data = first + second + "\n"
		if left >= right {
			data = first + "\n"
		}
		// A list is no stage of a pipeline: one more shell makes it one.
		script = "sh -c '" + script + "'"
	}
	script += " | sha256sum"
	data = digest([]byte(data)) + "  -\n"
	for range between(t, 1, 3) {
		cut := between(t, 8, 60)
		script += fmt.Sprintf(" | head -c %d | sha256sum", cut)
		data = digest([]byte(data[:cut])) + "  -\n"
	}
	return script, strings.TrimSuffix(data, "\n")
}

// must is a check that is also the control of what follows: a machine that
// does not do this much has failed, and nothing that it refuses shows anything.
func must(t *probe.T, id string, ok bool, expected string, got any) {
	if !t.Check(id, ok, expected, got) {
		t.Stop()
	}
	t.Control(id, true, nil)
}

// fill has the machine work something out and write it to a file, and returns
// the line that is then in it.
func fill(t *probe.T, check string, id sandbox.InstanceID, file string) string {
	script, answer := puzzle(t)
	got := sh(t, id, script+" > "+file+" && cat "+file)
	must(t, check, printed(got, answer+"\n"), "the line "+answer+" in "+file, says(got))
	return answer
}
