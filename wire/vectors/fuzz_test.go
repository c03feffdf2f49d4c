package vectors_test

import (
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/authorkit"
)

// FuzzStream: whatever an attachment carries, the reference reader ends, and
// what it has from a part of it is the beginning of what it has from all.
func FuzzStream(f *testing.F) {
	entries, err := fs.ReadDir(vectorsFiles, "scenario/stream")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		var s authorkit.Scenario
		data, err := fs.ReadFile(vectorsFiles, "scenario/stream/"+e.Name())
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			f.Fatal(err)
		}
		stream, _ := hex.DecodeString(s.Hex)
		prefix, _ := hex.DecodeString(s.Outcome.Prefix)
		f.Add(prefix, stream, uint(len(stream)/2))
	}
	f.Fuzz(func(t *testing.T, prefix, stream []byte, cut uint) {
		all := authorkit.Read(prefix, stream)
		if all.End == "" || (all.End == "violation") != (all.Why != "") {
			t.Fatalf("%+v", all)
		}
		part := authorkit.Read(prefix, stream[:cut%uint(len(stream)+1)])
		if !strings.HasPrefix(all.Output, part.Output) || !strings.HasPrefix(part.Output, hex.EncodeToString(prefix)) {
			t.Fatalf("%s is no beginning of %s", part.Output, all.Output)
		}
	})
}
