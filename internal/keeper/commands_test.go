package keeper

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	kept := Record{SessionID: "kept", KeepMillis: 1000}
	zdr := Record{SessionID: "zdr"}
	for _, r := range []Record{kept, zdr} {
		if err := os.MkdirAll(placeOf(dir, r.SessionID).dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	code := int64(3)
	begun := Ran{ID: "cmd_1", Command: []string{"make", "a\xffb"}, StartedAt: "2026-01-01T00:00:00.000Z"}
	ended := begun
	ended.EndedAt, ended.Cause, ended.Exit, ended.OutputBytes = "2026-01-01T00:00:01.000Z", "exited", sandbox.Exit{ExitCode: &code}, 7
	other := Ran{ID: "cmd_2", Command: []string{strings.Repeat("é", maxArgv)}, StartedAt: "2026-01-01T00:00:02.000Z"}
	if err := os.WriteFile(placeOf(dir, "kept").file(commandsName), []byte(`{"id":"cmd_0","argv":["tor`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Ran{begun, other, ended} {
		if err := errors.Join(Note(dir, kept, c), Note(dir, zdr, c)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Commands(dir, "kept")
	ended.Command = []string{"make", "a\uFFFDb"}
	if err != nil || len(got) != 2 || !cmp.Equal(got[0], ended) || got[1].EndedAt != "" || len(got[1].Command[0]) > maxArgv+3 {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(placeOf(dir, "kept").file(commandsName)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	// What keeps nothing keeps no log, and none is made again for what has ended.
	if left, err := os.ReadDir(placeOf(dir, "zdr").dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.Remove(placeOf(dir, "kept").file(commandsName)); err != nil {
		t.Fatal(err)
	}
	if err := Note(dir, kept, ended); err != nil {
		t.Error(err)
	}
	if got, err := Commands(dir, "kept"); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Commands(dir, "../kept"); err == nil {
		t.Error("a path was taken for an id")
	}
}

func TestCommandsAreBounded(t *testing.T) {
	dir := t.TempDir()
	r := Record{SessionID: "kept", KeepMillis: 1000}
	if err := os.MkdirAll(placeOf(dir, "kept").dir, 0o700); err != nil {
		t.Fatal(err)
	}
	long := []string{strings.Repeat("x", maxArgv)}
	for range 400 {
		if err := Note(dir, r, Ran{ID: NewCommandID(), Command: long, StartedAt: "2026-01-01T00:00:00.000Z"}); err != nil {
			t.Fatal(err)
		}
	}
	last := Ran{ID: "cmd_last", Command: []string{"true"}, StartedAt: "2026-01-01T00:00:00.000Z"}
	if err := Note(dir, r, last); err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, name := range []string{commandsName, olderName} {
		info, err := os.Stat(placeOf(dir, "kept").file(name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	got, err := Commands(dir, "kept")
	if err != nil || size > 2*maxCommands+4*maxArgv || len(got) < 60 || got[len(got)-1].ID != "cmd_last" {
		t.Errorf("%d bytes, %d commands, %v", size, len(got), err)
	}
}

func FuzzParseCommands(f *testing.F) {
	line, err := canonical.Encode(Ran{ID: "cmd_1", Command: []string{"x"}, StartedAt: "2026-01-01T00:00:00.000Z"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(line) + "\n" + string(line) + "\n")
	f.Add(string(line[:10]) + "\n\n" + string(line))
	f.Add("{}\n[]")
	f.Fuzz(func(t *testing.T, text string) {
		seen := map[string]bool{}
		for _, c := range parseCommands(text) {
			if seen[c.ID] || c.ID == "" || !c.StartedAt.Valid() {
				t.Errorf("%+v", c)
			}
			seen[c.ID] = true
		}
	})
}
