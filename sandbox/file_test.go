package sandbox

import (
	"fmt"
	"strings"
	"testing"
)

func TestOperations_WriteFile(t *testing.T) {
	rules(t, func() FileWrite { return FileWrite{Path: "/a", Content: []byte("x"), Executable: true} }, "executable", []broken[FileWrite]{
		{"path", func(w *FileWrite) { w.Path = "/" }},
		{"content", func(w *FileWrite) { w.Content = make([]byte, MaxFileBytes+1) }},
		{"", func(w *FileWrite) { w.Content = make([]byte, MaxFileBytes) }},
		{"symlink", func(w *FileWrite) { w.Symlink = "b" }},
		{"symlink", func(w *FileWrite) { w.Content, w.Symlink = nil, "b" }},
		{"symlink", func(w *FileWrite) { w.Executable, w.Symlink = false, "b" }},
		{"", func(w *FileWrite) { *w = FileWrite{Path: "/a", Symlink: "../../etc"} }},
		{"symlink", func(w *FileWrite) { *w = FileWrite{Path: "/a", Symlink: "b\x00"} }},
		{"symlink", func(w *FileWrite) { *w = FileWrite{Path: "/a", Symlink: strings.Repeat("b", 4096)} }},
		{"", func(w *FileWrite) { *w = FileWrite{Path: "/a", Symlink: strings.Repeat("b", 4095)} }},
	})
}

func TestOperations_ReadFile(t *testing.T) {
	rules(t, func() FileRead { return FileRead{"/a/b", "/a", 0} }, "", []broken[FileRead]{
		{"path", func(r *FileRead) { r.Path = "/a/../b" }},
		{"path", func(r *FileRead) { r.Path = "/b" }},
		{"path", func(r *FileRead) { r.Path = "/a" }},
		{"path", func(r *FileRead) { r.Path = "/ab" }},
		{"allowed_root", func(r *FileRead) { r.AllowedRoot = "a" }},
		{"maximum_bytes", func(r *FileRead) { r.MaximumBytes = -1 }},
		{"maximum_bytes", func(r *FileRead) { r.MaximumBytes = MaxFileBytes + 1 }},
		{"", func(r *FileRead) { r.MaximumBytes = MaxFileBytes }},
	})
}

func TestBounds_ReadFilesAggregate(t *testing.T) {
	good := func() FilesRead { return FilesRead{"/a", []FileMember{{"/a/b", 1}, {"/a/c", 2}}, 3} }
	// A root of no form is found at the first member.
	rules(t, good, "allowed_root", []broken[FilesRead]{
		{"files[0].allowed_root", func(r *FilesRead) { r.AllowedRoot = "" }},
		{"files[1].path", func(r *FilesRead) { r.Files[1].Path = "/b" }},
		{"files[1].maximum_bytes", func(r *FilesRead) { r.Files[1].MaximumBytes = 1 << 62 }}, // no sum overflows
		{"files", func(r *FilesRead) { r.Files = nil }},
		{"aggregate_maximum_bytes", func(r *FilesRead) { r.AggregateMaximumBytes = 2 }},
		{"aggregate_maximum_bytes", func(r *FilesRead) { r.AggregateMaximumBytes = 4 }},
	})
	batch := func(n int, each int64) error {
		r := FilesRead{AllowedRoot: "/a", AggregateMaximumBytes: int64(n) * each}
		for i := range n {
			r.Files = append(r.Files, FileMember{fmt.Sprint("/a/", i), each})
		}
		return r.Validate()
	}
	bound(t, "files", MaxReadFiles, func(n int) error { return batch(n, 1) })
	named(t, batch(8, MaxFileBytes), "")
	named(t, batch(9, MaxFileBytes), "aggregate_maximum_bytes")
	named(t, batch(1024, 128<<10), "")
	named(t, batch(1024, 128<<10+1), "aggregate_maximum_bytes")
}

func TestOperations_ReadFilesUnion(t *testing.T) {
	m := FileMember{"/a/b", 2}
	for _, c := range []struct {
		result FileResult
		field  string
	}{
		{FileResult{Content: []byte("ab")}, ""}, {FileResult{}, ""}, {FileResult{Content: []byte{}}, ""},
		{FileResult{Content: []byte("abc")}, "content"}, {FileResult{Content: []byte{}, Refused: RefusedNotFound}, "content"},
		{FileResult{Refused: RefusedOutsideRoot}, ""}, {FileResult{Refused: RefusedNotFound}, ""}, {FileResult{Refused: RefusedNotRegular}, ""},
		{FileResult{Refused: RefusedTooLarge}, ""}, {FileResult{Refused: "busy"}, "refused"},
	} {
		named(t, c.result.Validate(m), c.field)
	}
}

func TestOperations_Listing(t *testing.T) {
	rules(t, func() Listing { return Listing{"/a", 1} }, "", []broken[Listing]{
		{"root", func(l *Listing) { l.Root = "/" }},
		{"max_entries", func(l *Listing) { l.MaxEntries = 0 }},
		{"max_entries", func(l *Listing) { l.MaxEntries = MaxListEntries + 1 }},
		{"", func(l *Listing) { l.MaxEntries = MaxListEntries }},
	})
}

func TestOperations_ListDirResult(t *testing.T) {
	good := func() []DirEntry {
		return []DirEntry{{"a", 0, goodDigest}, {"a/b", 1, goodDigest}, {"a0", 1, goodDigest}}
	}
	for _, c := range []broken[[]DirEntry]{
		{"", func(*[]DirEntry) {}},
		{"", func(e *[]DirEntry) { *e = nil }},
		{"entries", func(e *[]DirEntry) { *e = append(*e, DirEntry{"b", 1, goodDigest}) }},
		{"entries[0].path", func(e *[]DirEntry) { (*e)[0].Path = "" }},
		{"entries[0].path", func(e *[]DirEntry) { (*e)[0].Path = "/a" }},
		{"entries[0].path", func(e *[]DirEntry) { (*e)[0].Path = "../a" }},
		{"entries[0].path", func(e *[]DirEntry) { (*e)[0].Path = "a/" }},
		{"entries[0].size", func(e *[]DirEntry) { (*e)[0].Size = -1 }},
		{"entries[0].digest", func(e *[]DirEntry) { (*e)[0].Digest = "" }},
		{"entries[1].path", func(e *[]DirEntry) { (*e)[1].Path = "a" }},
		{"entries[2].path", func(e *[]DirEntry) { (*e)[2].Path = "a" }},
	} {
		e := good()
		c.how(&e)
		named(t, ValidateEntries(e, 3), c.field)
	}
}

// TestOptionalCapabilities_ListProjectDir: complete, in order, and every leaf
// named with the fields of its type.
func TestOptionalCapabilities_ListProjectDir(t *testing.T) {
	good := func() ProjectListing {
		return ProjectListing{Complete: true, Leaves: []Leaf{
			{Path: "a", Type: LeafRegular, Size: 1, Digest: goodDigest, Executable: true}, {Path: "b", Type: LeafSymlink, Target: "a"},
			{Path: "c", Type: LeafSubmodule}, {Path: "d", Type: LeafDevice}, {Path: "e", Type: LeafSocket, GuestObserved: true},
			{Path: "f", Type: LeafFIFO}, {Path: "g", Type: LeafOther},
		}}
	}
	for _, c := range []broken[ProjectListing]{
		{"", func(*ProjectListing) {}},
		{"", func(l *ProjectListing) { l.Leaves = nil }},
		{"complete", func(l *ProjectListing) { l.Complete = false }},
		{"leaves", func(l *ProjectListing) { l.Leaves = append(l.Leaves, Leaf{Path: "h", Type: LeafOther}) }},
		{"leaves[0].path", func(l *ProjectListing) { l.Leaves[0].Path = "a//b" }},
		{"leaves[0].type", func(l *ProjectListing) { l.Leaves[0].Type = "" }},
		{"leaves[0].type", func(l *ProjectListing) { l.Leaves[0].Type = "directory" }},
		{"leaves[0].type", func(l *ProjectListing) { l.Leaves[0].Target = "b" }},
		{"leaves[0].type", func(l *ProjectListing) { l.Leaves[0].GuestObserved = true }},
		{"leaves[0].size", func(l *ProjectListing) { l.Leaves[0].Size = MaxInteger + 1 }},
		{"leaves[0].digest", func(l *ProjectListing) { l.Leaves[0].Digest = "" }},
		{"leaves[1].digest", func(l *ProjectListing) { l.Leaves[1].Digest = goodDigest }},
		{"leaves[1].target", func(l *ProjectListing) { l.Leaves[1].Target = strings.Repeat("a", 4096) }},
		{"leaves[1].target", func(l *ProjectListing) { l.Leaves[1].Target = "\x00" }},
		{"leaves[1].path", func(l *ProjectListing) { l.Leaves[1].Path = "a" }},
		{"leaves[2].target", func(l *ProjectListing) { l.Leaves[2].Target = "a" }},
		{"leaves[3].digest", func(l *ProjectListing) { l.Leaves[3].Size = 1 }},
		{"leaves[4].digest", func(l *ProjectListing) { l.Leaves[4].Executable = true }},
		{"leaves[6].path", func(l *ProjectListing) { l.Leaves[6].Path = "A" }},
	} {
		l := good()
		c.how(&l)
		named(t, l.Validate(7), c.field)
	}
}
