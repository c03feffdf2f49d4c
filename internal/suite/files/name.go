package files

import (
	"fmt"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// Names are bytes. What a real repository holds, and what a hostile workload
// makes, is any of them but NUL and the slash.
func odd() []probe.Probe {
	return suite([]probe.Probe{
		{ID: "files.odd-names-read", Clause: "CF-FS-20", Source: paths, Requires: []report.Token{report.Filesystem},
			Title: "a file of any name is written and read", Run: oddRead},
		{ID: "files.odd-names-listed", Clause: "CF-FS-21", Source: paths, Requires: []report.Token{report.ListDir},
			Title: "a file of any name is listed byte for byte", Run: oddListed},
		{ID: "files.odd-names-in-project", Clause: "CF-FS-22", Source: paths, Requires: []report.Token{report.ListProjectDir},
			Title: "a leaf of any name is in the project listing byte for byte", Run: oddProject},
		{ID: "files.deep-path", Clause: "CF-FS-23", Source: paths, Requires: []report.Token{report.Filesystem},
			Title: "a path of 4,000 bytes, some two hundred directories deep, is written and read", Run: deepPath},
	})
}

// names are odd names, each with a nonce in it.
func names(t *probe.T) []string {
	n := t.Nonce()
	return []string{
		"-" + n, "--" + n, " " + n + " ", "..." + n, n + "\nsecond line", n + "\t\r\x01\x7f", n + "\xff\xfe\x80", n + "'\"\\`$(x)", n + "*?[a]~#%&;|<>",
		n + "é", n + "e\u0301", n + strings.Repeat("n", sandbox.MaxNameBytes-len(n)),
	}
}

// staged writes a file of each name into the output tree.
func staged(t *probe.T, names []string) *probe.Machine {
	m := t.Machine(probe.Shape{})
	for _, name := range names {
		t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: sandbox.OutputPath + "/" + name, Content: []byte(name)}))
	}
	return m
}

func oddRead(t *probe.T) {
	all := names(t)
	m := staged(t, all)
	for _, name := range all {
		got, err := m.Read(sandbox.OutputPath+"/"+name, sandbox.OutputPath, 1000)
		t.Check("content", err == nil && string(got) == name, fmt.Sprintf("%q", name), fmt.Sprintf("%q, %v", got, err))
	}
}

func oddListed(t *probe.T) {
	all := names(t)
	m := staged(t, all)
	member := t.Optional().ListDir
	if member == nil {
		t.NotHere("list_dir is claimed, and there is no such member")
	}
	got, err := member.ListDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 100})
	t.Need("list-dir", err)
	for _, name := range all {
		t.Check("named", slices.ContainsFunc(got, func(e sandbox.DirEntry) bool { return e.Path == name }), fmt.Sprintf("%q", name), "no such name")
	}
}

func oddProject(t *probe.T) {
	all := names(t)
	m := staged(t, all)
	got, err := t.Optional().ListProjectDir.ListProjectDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 100})
	t.Need("list-project-dir", err)
	for _, name := range all {
		t.Check("named", slices.ContainsFunc(got.Leaves, func(l sandbox.Leaf) bool { return l.Path == name }), fmt.Sprintf("%q", name), "no such name")
	}
}

// deepPath stays below the bound of 4,096: a provider needs some of it for
// where the tree lies on its host.
func deepPath(t *probe.T) {
	path := sandbox.OutputPath
	for len(path) < 4000-2*17 {
		path += "/" + t.Nonce()
	}
	path += "/" + t.Nonce() + strings.Repeat("x", 4000-len(path)-17)
	m, content := t.Machine(probe.Shape{}), t.Nonce()
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: []byte(content)}))
	got, err := m.Read(path, sandbox.OutputPath, 100)
	t.Need("read", err)
	t.Check("content", string(got) == content, content, got)
}
