package wire

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func TestPages_HoldEveryEntryOnce(t *testing.T) {
	for name, c := range map[string]struct {
		path    string
		entries int
		pages   int // exactly, or at least if negative
	}{
		"none":            {"a", 0, 0},
		"one page":        {"a", 1000, 1},
		"one more":        {"a", 1001, 2},
		"long names":      {strings.Repeat("n", 4000), 600, -3},
		"long, all bytes": {strings.Repeat("\xff", 4096), 70, -3},
	} {
		entries := make([]sandbox.DirEntry, c.entries)
		leaves := make([]sandbox.Leaf, c.entries)
		for i := range entries {
			entries[i] = sandbox.DirEntry{Path: c.path, Size: int64(i), Digest: zero}
			leaves[i] = sandbox.Leaf{Path: c.path, Type: sandbox.LeafSymlink, Target: c.path[:len(c.path)/2]}
		}
		var b bytes.Buffer
		w := NewWriter(&b)
		if err := w.Entries(entries); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := w.Leaves(leaves); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var gotEntries []sandbox.DirEntry
		var gotLeaves []sandbox.Leaf
		pages := 0
		for r := NewReader(&b); ; {
			f, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil || f.Type != TypeItem {
				t.Fatalf("%s: %v, %v", name, f.Type, err)
			}
			if len(gotEntries) < c.entries {
				p, err := Decode[DirPage](f.Payload)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				pages++
				gotEntries = append(gotEntries, p.Entries...)
				continue
			}
			p, err := Decode[ProjectPage](f.Payload)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			gotLeaves = append(gotLeaves, p.Entries...)
		}
		if !slices.Equal(gotEntries, entries) || !slices.Equal(gotLeaves, leaves) {
			t.Errorf("%s: %d and %d of %d came back", name, len(gotEntries), len(gotLeaves), c.entries)
		}
		if c.pages >= 0 && pages != c.pages || c.pages < 0 && pages < -c.pages {
			t.Errorf("%s: %d pages", name, pages)
		}
	}
	if err := NewWriter(io.Discard).Entries([]sandbox.DirEntry{{Path: strings.Repeat("\xff", MaxFrameBytes/4)}}); err == nil {
		t.Error("an entry that no page holds was written")
	}
}
