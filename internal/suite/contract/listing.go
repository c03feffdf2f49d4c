package contract

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// The probes of listings leave the form, the order and the bound of an answer
// to the standing checks.
func listings() []probe.Probe {
	const operations = `contract "The operations", row listDir`
	const bounds = `contract "Bounds"`
	one := []report.Token{report.ListDir}
	return append([]probe.Probe{
		{Suite: report.Contract, ID: "list-dir.size-and-digest", Clause: "CF-LS-01", Source: operations, Requires: one, Title: "every file is named with its size and SHA-256", Run: listDigest},
		{Suite: report.Contract, ID: "list-dir.hidden", Clause: "CF-LS-02", Source: operations, Requires: one, Title: "files whose names begin with a dot are named too", Run: listHidden},
		{Suite: report.Contract, ID: "list-dir.nested", Clause: "CF-LS-03", Source: operations, Requires: one, Title: "files in directories are named by their path below the root", Run: listNested},
		{Suite: report.Contract, ID: "list-dir.only-regular", Clause: "CF-LS-04", Source: operations, Requires: one, Title: "links and special files are not named, and no link is entered", Run: listRegular},
		{Suite: report.Contract, ID: "list-dir.empty", Clause: "CF-LS-05", Source: operations, Requires: one, Title: "an empty root is an empty listing", Run: listEmpty},
		{Suite: report.Contract, ID: "list-dir.fits-exactly", Clause: "CF-LS-06", Source: bounds, Requires: one, Title: "a listing may have exactly max_entries", Run: listFits},
		{Suite: report.Contract, ID: "list-dir.too-many", Clause: "CF-LS-07", Source: bounds, Requires: one, Title: "more than max_entries is refused, not shortened", Run: listTooMany},
		{Suite: report.Contract, ID: "list-dir.mount", Clause: "CF-LS-08", Source: operations, Requires: []report.Token{report.ListDir, report.Mounts}, Title: "a mount is listed", Run: listMount},
		{Suite: report.Contract, ID: "list-dir.over-bound", Clause: "CF-LS-09", Source: bounds, Requires: one, Title: "a max_entries over 100,000 is refused", Run: listOver},
	}, projectListings()...)
}

// made is a machine whose workload ran script in the output tree.
func made(t *probe.T, script string) *probe.Machine {
	m := t.Machine(probe.Shape{})
	t.Control("workload-writes", sees(m, "cd "+sandbox.OutputPath+" && "+script), "the workload could not make what is to be listed")
	return m
}

// list lists a root. The probe stops at an answer that the standing checks
// refuse.
func list(t *probe.T, m *probe.Machine, root string, most int64) ([]sandbox.DirEntry, error) {
	member := t.Optional().ListDir
	if member == nil {
		t.NotHere("list_dir is claimed, and there is no such member")
	}
	got, err := member.ListDir(t.Context(), m.ID, sandbox.Listing{Root: root, MaxEntries: most})
	if err == nil && int64(len(got)) > most {
		t.Check("answered", true, "", nil)
		t.Stop()
	}
	return got, err
}

// named lists the output tree and gives the paths.
func named(t *probe.T, m *probe.Machine, most int64) []string {
	got, err := list(t, m, sandbox.OutputPath, most)
	t.Need("list-dir", err)
	paths := []string{}
	for _, e := range got {
		paths = append(paths, e.Path)
	}
	return paths
}

// same checks a list of names whose order is the standing checks' matter.
func same(t *probe.T, id string, got, want []string) {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	t.Check(id, slices.Equal(got, want), fmt.Sprintf("%q", want), fmt.Sprintf("%q", got))
}

func listDigest(t *probe.T) {
	name, content := t.Nonce(), t.Nonce()
	m := made(t, "printf "+content+" > "+name)
	got, err := list(t, m, sandbox.OutputPath, 100)
	t.Need("list-dir", err)
	if len(got) != 1 || got[0].Path != name {
		t.Fatal("named", name, fmt.Sprint(got))
	}
	t.Check("size", got[0].Size == int64(len(content)), fmt.Sprint(len(content)), got[0].Size)
	digest(t, "digest", content, got[0].Digest)
	// Another content of the same length: no digest may be kept by size.
	content = t.Nonce()
	write(t, m, sandbox.OutputPath+"/"+name, content)
	got, err = list(t, m, sandbox.OutputPath, 100)
	t.Need("list-dir", err)
	if len(got) == 1 {
		digest(t, "afresh", content, got[0].Digest)
	}
}

// digest compares without the case of the letters, which is a matter of form.
func digest(t *probe.T, id, content string, got sandbox.Digest) {
	want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
	t.Check(id, strings.EqualFold(string(got), want), want, string(got))
}

func listHidden(t *probe.T) {
	visible, hidden := t.Nonce(), "."+t.Nonce()
	m := made(t, "echo > "+visible+" && echo > "+hidden)
	same(t, "named", named(t, m, 100), []string{visible, hidden})
}

func listNested(t *probe.T) {
	a, b, c := t.Nonce(), t.Nonce(), t.Nonce()
	m := made(t, "mkdir -p "+a+"/"+b+" && echo > "+c+" && : > "+a+"/"+c+" && echo > "+a+"/"+b+"/"+c) // one of them empty
	same(t, "named", named(t, m, 100), []string{c, a + "/" + c, a + "/" + b + "/" + c})
}

func listRegular(t *probe.T) {
	file := t.Nonce()
	m := made(t, "echo > "+file)
	directory, name, content := secret(t, m)
	link, into, pipe := inOutput(t), inOutput(t), inOutput(t)
	t.Control("specials-made", sees(m, "ln -s "+file+" "+link+" && ln -s "+directory+" "+into+" && mkfifo "+pipe), "the workload could not make links and a FIFO")
	followed(t, m, into+"/"+name, content)
	same(t, "named", named(t, m, 100), []string{file})
}

func listEmpty(t *probe.T) {
	same(t, "named", named(t, t.Machine(probe.Shape{}), 100), []string{})
}

// three makes three files.
func three(t *probe.T) (*probe.Machine, []string) {
	names := []string{t.Nonce(), t.Nonce(), t.Nonce()}
	return made(t, "echo > "+names[0]+" && echo > "+names[1]+" && echo > "+names[2]), names
}

func listFits(t *probe.T) {
	m, names := three(t)
	same(t, "named", named(t, m, 3), names)
}

func listTooMany(t *probe.T) {
	m, _ := three(t)
	_, err := list(t, m, sandbox.OutputPath, 2)
	t.Check("not-shortened", refused(err), "a refusal", err)
}

// refused reports whether err is one of the contract's own.
func refused(err error) bool {
	_, ok := errors.AsType[*sandbox.Error](err)
	return ok
}

func listMount(t *probe.T) {
	mount := mountAt(t, sandbox.AccessReadOnly)
	name := t.Nonce()
	m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{mount}, Files: []sandbox.FileWrite{{Path: mount.MountPath + "/" + name, Content: []byte(t.Nonce())}}})
	got, err := list(t, m, mount.MountPath, 100)
	t.Need("list-dir", err)
	t.Check("named", len(got) == 1 && got[0].Path == name, name, got)
}

func listOver(t *probe.T) {
	_, err := list(t, t.Machine(probe.Shape{}), sandbox.OutputPath, sandbox.MaxListEntries+1)
	t.Check("refused", refused(err), "a refusal", err)
}
