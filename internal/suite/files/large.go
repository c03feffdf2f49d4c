package files

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

func large() []probe.Probe {
	return suite([]probe.Probe{
		{ID: "files.largest-whole", Clause: "CF-FS-34", Source: bounds, Requires: []report.Token{report.Filesystem}, Once: true,
			Title: "16 MiB are written, seen by the workload and read back, every byte", Run: largestWhole},
		{ID: "files.aggregate-edge", Clause: "CF-FS-30", Source: bounds, Requires: []report.Token{report.ReadFiles}, Once: true,
			Title: "a batch may ask for 128 MiB in all", Run: aggregateEdge},
		{ID: "files.large-digest", Clause: "CF-FS-31", Source: bounds, Requires: []report.Token{report.ListDir}, Once: true,
			Title: "a file too large to be read is listed with its size and SHA-256", Run: largeDigest},
		{ID: "files.many-listed", Clause: "CF-FS-32", Source: bounds, Requires: []report.Token{report.ListDir}, Once: true,
			Title: "100,000 files are one listing", Run: manyListed},
		{ID: "files.many-in-project", Clause: "CF-FS-33", Source: bounds, Requires: []report.Token{report.ListProjectDir}, Once: true,
			Title: "100,000 leaves are one project listing", Run: manyInProject},
	})
}

// small is the volume below which a run wants no volume at all.
const small = 64 << 20

// roomy is a machine with at least so many bytes of disk.
func roomy(t *probe.T, disk int64) *probe.Machine {
	if most := t.Envelope().MaximumResources.DiskBytes; most < disk {
		t.NotHere(fmt.Sprintf("no machine of this target has a disk of %d bytes", disk))
	}
	return t.Machine(probe.Shape{Limits: sandbox.Resources{DiskBytes: max(disk, small)}})
}

// fill makes a file of exactly size bytes, a multiple of 16, of one line again
// and again, and returns what it holds.
func fill(t *probe.T, m *probe.Machine, name string, size int64) []byte {
	line := t.Nonce()[:15]
	made(t, m, fmt.Sprintf("yes %s | head -c %d > %s", line, size, name))
	return bytes.Repeat([]byte(line+"\n"), int(size/16))
}

func largestWhole(t *probe.T) {
	size := sandbox.MaxFileBytes
	if t.StreamBytes() < small {
		size = 1 << 20
		t.Observe("a file of %d bytes instead of 16 MiB, in a run of little volume", size)
	}
	m, name, content := roomy(t, int64(2*size)), t.Nonce(), t.Bytes(size)
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: sandbox.OutputPath + "/" + name, Content: content}))
	t.Check("written", probe.Code(m.Sh(fmt.Sprintf(`cd %s && sha256sum %s | while read s; do [ "$s" = '%x  %s' ] && exit %d; done`,
		sandbox.OutputPath, name, sha256.Sum256(content), name, agreed))) == agreed, "the bytes that were written", "others")
	got, err := m.Read(sandbox.OutputPath+"/"+name, sandbox.OutputPath, int64(size))
	t.Need("read", err)
	t.Check("read", bytes.Equal(got, content), "the bytes that were written", got)
}

func aggregateEdge(t *probe.T) {
	const files = sandbox.MaxReadFilesBytes / sandbox.MaxFileBytes
	size := int64(sandbox.MaxFileBytes)
	if t.StreamBytes() < sandbox.MaxReadFilesBytes {
		size = 1 << 10
		t.Observe("files of %d bytes instead of 16 MiB, in a run of little volume; the bounds asked for are the same", size)
	}
	m := roomy(t, size*(files+1))
	q := sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, AggregateMaximumBytes: sandbox.MaxReadFilesBytes}
	var want [][]byte
	for range files {
		name := t.Nonce()
		want = append(want, fill(t, m, name, size))
		q.Files = append(q.Files, sandbox.FileMember{Path: sandbox.OutputPath + "/" + name, MaximumBytes: sandbox.MaxFileBytes})
	}
	got, err := t.Optional().ReadFiles.ReadFiles(t.Context(), m.ID, q)
	t.Need("read-files", err)
	if len(got) != len(want) { // the standing check's
		return
	}
	for i := range want {
		t.Check("content", bytes.Equal(got[i].Content, want[i]), fmt.Sprintf("%d bytes as they were written", size), got[i].Content)
	}
}

func largeDigest(t *probe.T) {
	size := int64(sandbox.MaxFileBytes + 16)
	if t.StreamBytes() < small {
		size = 1 << 20
		t.Observe("a file of %d bytes instead of more than 16 MiB, in a run of little volume", size)
	}
	m, name := roomy(t, 2*size), t.Nonce()
	want := fmt.Sprintf("sha256:%x", sha256.Sum256(fill(t, m, name, size)))
	member := t.Optional().ListDir
	if member == nil {
		t.NotHere("list_dir is claimed, and there is no such member")
	}
	got, err := member.ListDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 10})
	t.Need("list-dir", err)
	if len(got) != 1 {
		t.Fatal("named", name, fmt.Sprint(got))
	}
	t.Check("size", got[0].Size == size, fmt.Sprint(size), got[0].Size)
	t.Check("digest", strings.EqualFold(string(got[0].Digest), want), want, string(got[0].Digest))
}

// many makes as many files as a listing may have, or fewer in a run of little
// volume. Whether a machine holds so many is not what is asked here.
func many(t *probe.T) (*probe.Machine, int) {
	n, disk := sandbox.MaxListEntries, int64(512<<20) // a file system has an inode for each 4 KiB, or so
	if t.StreamBytes() < small {
		n, disk = 2000, 16<<20
		t.Observe("%d files instead of 100,000, in a run of little volume", n)
	}
	m := roomy(t, disk)
	if !sees(m, fmt.Sprintf("seq 1 %d | while read i; do : > f$i; done && [ -e f%d ]", n, n)) {
		t.NotHere(fmt.Sprintf("the machine does not take %d files", n))
	}
	return m, n
}

// numbered reports whether paths are f1 to fn, in whatever order.
func numbered(t *probe.T, n int, paths []string) {
	seen := make(map[string]bool, len(paths))
	for _, p := range paths {
		seen[p] = true
	}
	missing := 0
	for i := range n {
		if !seen[fmt.Sprintf("f%d", i+1)] {
			missing++
		}
	}
	t.Check("complete", missing == 0 && len(seen) == n, fmt.Sprintf("%d files", n), fmt.Sprintf("%d, with %d missing", len(paths), missing))
}

func manyListed(t *probe.T) {
	m, n := many(t)
	member := t.Optional().ListDir
	if member == nil {
		t.NotHere("list_dir is claimed, and there is no such member")
	}
	got, err := member.ListDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: int64(n)})
	t.Need("list-dir", err)
	paths := make([]string, len(got))
	for i, e := range got {
		paths[i] = e.Path
	}
	numbered(t, n, paths)
}

func manyInProject(t *probe.T) {
	m, n := many(t)
	got, err := t.Optional().ListProjectDir.ListProjectDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: int64(n)})
	t.Need("list-project-dir", err)
	paths := make([]string, len(got.Leaves))
	for i, l := range got.Leaves {
		paths[i] = l.Path
	}
	numbered(t, n, paths)
}
