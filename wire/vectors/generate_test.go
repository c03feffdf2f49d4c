package vectors_test

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/authorkit"
	"github.com/checkfu/checkfu/wire/vectors"
)

// TestKit_IsWhatTheTypesSay: byte for byte, and nothing else lies there.
func TestKit_IsWhatTheTypesSay(t *testing.T) {
	want := authorkit.Files()
	total := 0
	err := fs.WalkDir(vectors.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		have, err := fs.ReadFile(vectors.Files(), path)
		if err != nil {
			return err
		}
		total += len(have)
		data, generated := want[path]
		delete(want, path)
		switch byHand := !strings.Contains(path, "/") && path != "revisions.json" && path != "openapi.json"; {
		case generated && !bytes.Equal(have, data):
			t.Errorf("%s is not what is generated", path)
		case !generated && !byHand:
			t.Errorf("%s is not generated any more", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range want {
		t.Errorf("%s is missing", path)
	}
	if t.Failed() {
		t.Log("run go generate ./wire/vectors and look at the difference")
	}
	if total > 3<<20 {
		t.Errorf("the kit has %d bytes", total)
	}
}

func TestGeneration_IsAFunctionOfTheSource(t *testing.T) {
	first, second := authorkit.Files(), authorkit.Files()
	for path, data := range first {
		if !bytes.Equal(second[path], data) {
			t.Errorf("%s differs from one run to the next", path)
		}
	}
}

func TestSchema_ByName(t *testing.T) {
	names := vectors.Schemas()
	if len(names) != len(authorkit.Messages())+1 {
		t.Errorf("%d names", len(names))
	}
	for _, name := range names {
		if data, ok := vectors.Schema(name); !ok || len(data) == 0 {
			t.Errorf("%s has no schema", name)
		}
	}
	for _, name := range []string{"", "bundle", "Nothing", "../README", "Empty.json", "empty"} {
		if _, ok := vectors.Schema(name); ok {
			t.Errorf("%q has one", name)
		}
	}
	if len(vectors.Bundle()) == 0 || len(vectors.OpenAPI()) == 0 {
		t.Error("a document is empty")
	}
}
