package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func example() record {
	return record{
		state: sandbox.JournalDispatched, pause: Token(strings.Repeat("0f", 16)), planned: true, tree: "mounts/12",
		files: []file{{"a/b/\n\xff c", 1, 1<<64 - 1, 2}, {"d", 3, 0, 0}},
	}
}

func TestRecord_Refusals(t *testing.T) {
	good := string(example().encode())
	if r, err := parse([]byte(good)); err != nil || string(r.encode()) != good {
		t.Fatalf("%+v, %v", r, err)
	}
	for field, change := range map[string][2]string{
		"lines":      {"\n", ""},
		"schema":     {"v1", "v2"},
		"state":      {"dispatched ", "undispatched"},
		"pause":      {"0f0f", "0F0F"},
		"inherited":  {"----", "---"},
		"planned":    {"\n1\n", "\n2\n"},
		"tree":       {"mounts/12", "../mounts"},
		"targets[0]": {" 0002 ", " 0003 "}, // more parents than it has
		"targets[1]": {"ZA==", "Li4="},     // ".."
	} {
		e := (*Error)(nil)
		if _, err := parse([]byte(strings.Replace(good, change[0], change[1], -1))); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for n := range len(good) {
		if _, err := parse([]byte(good[:n])); err == nil && n != strings.LastIndex(good[:len(good)-1], "\n")+1 {
			t.Errorf("the first %d bytes are a record", n)
		}
	}
}

// FuzzParse: no input panics, and what is taken is what would be written.
func FuzzParse(f *testing.F) {
	f.Add(example().encode())
	f.Add(record{state: sandbox.JournalOpen, tree: "mounts/0", files: []file{{path: "f"}}}.encode())
	f.Add(record{state: sandbox.JournalRolledBack, inherited: Token(strings.Repeat("a0", 16)), tree: "x", files: []file{{path: strings.Repeat("d/", 40) + "f", missing: 40}}}.encode())
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parse(text)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if got := string(r.encode()); got != string(text) {
			t.Errorf("took %q, would write %q", text, got)
		}
	})
}
