package contract

import (
	"fmt"
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

func projectListings() []probe.Probe {
	const operations = `contract "The operations", row listProjectDir`
	const absent = `contract "Optional capabilities: absent versus wrong", row listProjectDir`
	const bounds = `contract "Bounds"`
	one := []report.Token{report.ListProjectDir}
	return []probe.Probe{
		{Suite: report.Contract, ID: "list-project-dir.special", Clause: "CF-LS-20", Source: absent, Requires: one, Title: "a FIFO is named, not left out", Run: projectSpecial},
		{Suite: report.Contract, ID: "list-project-dir.symlink", Clause: "CF-LS-21", Source: absent, Requires: one, Title: "a symbolic link is named with its target and not entered", Run: projectSymlink},
		{Suite: report.Contract, ID: "list-project-dir.executable", Clause: "CF-LS-22", Source: operations, Requires: one, Title: "executable files are told from others", Run: projectExecutable},
		{Suite: report.Contract, ID: "list-project-dir.size-and-digest", Clause: "CF-LS-23", Source: operations, Requires: one, Title: "regular files have their size and SHA-256", Run: projectDigest},
		{Suite: report.Contract, ID: "list-project-dir.every-leaf", Clause: "CF-LS-24", Source: operations, Requires: one, Title: "hidden and nested leaves are named", Run: projectLeaves},
		{Suite: report.Contract, ID: "list-project-dir.fits-exactly", Clause: "CF-LS-25", Source: bounds, Requires: one, Title: "a listing may have exactly max_entries", Run: projectFits},
		{Suite: report.Contract, ID: "list-project-dir.too-many", Clause: "CF-LS-26", Source: bounds, Requires: one, Title: "more than max_entries is refused, not shortened", Run: projectTooMany},
		{Suite: report.Contract, ID: "list-project-dir.over-bound", Clause: "CF-LS-27", Source: bounds, Requires: one, Title: "a max_entries over 100,000 is refused", Run: projectOver},
	}
}

// project lists the output tree. The probe stops at an answer over the bound.
func project(t *probe.T, m *probe.Machine, most int64) ([]sandbox.Leaf, error) {
	got, err := t.Optional().ListProjectDir.ListProjectDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: most})
	if err == nil && int64(len(got.Leaves)) > most {
		t.Check("answered", true, "", nil)
		t.Stop()
	}
	return got.Leaves, err
}

// leaf finds one leaf of the output tree. The probe stops if it is not named.
func leaf(t *probe.T, m *probe.Machine, name string) sandbox.Leaf {
	got, err := project(t, m, 100)
	t.Need("list-project-dir", err)
	i := slices.IndexFunc(got, func(l sandbox.Leaf) bool { return l.Path == name })
	if i < 0 {
		t.Fatal("named", name, fmt.Sprint(got))
	}
	return got[i]
}

func projectSpecial(t *probe.T) {
	name := t.Nonce()
	m := made(t, "mkfifo "+name)
	got := leaf(t, m, name)
	t.Check("type", got.Type == sandbox.LeafFIFO, string(sandbox.LeafFIFO), string(got.Type))
}

func projectSymlink(t *probe.T) {
	m := t.Machine(probe.Shape{})
	directory, name, content := secret(t, m)
	link := t.Nonce()
	m.Sh("ln -s " + directory + " " + sandbox.OutputPath + "/" + link)
	followed(t, m, sandbox.OutputPath+"/"+link+"/"+name, content)
	got := leaf(t, m, link)
	t.Check("type", got.Type == sandbox.LeafSymlink, string(sandbox.LeafSymlink), string(got.Type))
	t.Check("target", got.Target == directory, directory, got.Target)
	nowhere := t.Nonce()
	t.Control("link-made", sees(m, "ln -s "+nowhere+" "+sandbox.OutputPath+"/"+nowhere+"l"), "the workload could not make a link")
	names := leaves(t, m, 100)
	t.Check("nowhere", slices.Contains(names, nowhere+"l"), "a link that leads nowhere among the leaves", fmt.Sprint(names))
}

func projectExecutable(t *probe.T) {
	program, text := t.Nonce(), t.Nonce()
	m := made(t, "echo > "+text+" && chmod 644 "+text+" && echo > "+program+" && chmod 755 "+program)
	t.Check("set", leaf(t, m, program).Executable, "executable", "not executable")
	t.Check("not-set", !leaf(t, m, text).Executable, "not executable", "executable")
}

func projectDigest(t *probe.T) {
	name, content := t.Nonce(), t.Nonce()
	m := made(t, "printf "+content+" > "+name)
	got := leaf(t, m, name)
	t.Check("type", got.Type == sandbox.LeafRegular, string(sandbox.LeafRegular), string(got.Type))
	t.Check("size", got.Size == int64(len(content)), fmt.Sprint(len(content)), got.Size)
	digest(t, "digest", content, got.Digest)
	// Another content of the same length: no digest may be kept by size.
	content = t.Nonce()
	write(t, m, sandbox.OutputPath+"/"+name, content)
	digest(t, "afresh", content, leaf(t, m, name).Digest)
}

// leaves lists the output tree and gives the paths.
func leaves(t *probe.T, m *probe.Machine, most int64) []string {
	got, err := project(t, m, most)
	t.Need("list-project-dir", err)
	paths := []string{}
	for _, l := range got {
		paths = append(paths, l.Path)
	}
	return paths
}

func projectLeaves(t *probe.T) {
	a, b, hidden := t.Nonce(), t.Nonce(), "."+t.Nonce()
	m := made(t, "mkdir -p "+a+"/"+hidden+" && echo > "+b+" && echo > "+hidden+" && : > "+a+"/"+b+" && echo > "+a+"/"+hidden+"/"+b)
	same(t, "named", leaves(t, m, 100), []string{b, hidden, a + "/" + b, a + "/" + hidden + "/" + b})
}

func projectFits(t *probe.T) {
	m, names := three(t)
	same(t, "named", leaves(t, m, 3), names)
}

func projectTooMany(t *probe.T) {
	m, _ := three(t)
	_, err := project(t, m, 2)
	t.Check("not-shortened", refused(err), "a refusal", err)
}

func projectOver(t *probe.T) {
	_, err := project(t, t.Machine(probe.Shape{}), sandbox.MaxListEntries+1)
	t.Check("refused", refused(err), "a refusal", err)
}
