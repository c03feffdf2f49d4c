package contract

import (
	"bytes"
	"fmt"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// The probes of reading read what the workload made, so that no fault of
// writing can hide or show one of reading.
func reads() []probe.Probe {
	const operations = `contract "The operations", row readFile`
	const admits = `contract "Paths, mounts, and what the Runner admits first"`
	const bounds = `contract "Bounds"`
	one := []report.Token{report.Filesystem}
	mounted := []report.Token{report.Filesystem, report.Mounts}
	return append([]probe.Probe{
		{Suite: report.Contract, ID: "read.bytes-exact", Clause: "CF-CR-01", Source: operations, Requires: one, Title: "every one of the 256 byte values comes back", Run: readBytes},
		{Suite: report.Contract, ID: "read.empty-file", Clause: "CF-CR-02", Source: operations, Requires: one, Title: "a file without content is read as one", Run: readEmpty},
		{Suite: report.Contract, ID: "read.fits-exactly", Clause: "CF-CR-03", Source: bounds, Requires: one, Title: "a file as long as maximum_bytes, or one byte shorter, is read whole", Run: readFits},
		{Suite: report.Contract, ID: "read.too-large", Clause: "CF-CR-04", Source: bounds, Requires: one, Title: "a file over maximum_bytes is refused, not shortened", Run: readTooLarge},
		{Suite: report.Contract, ID: "read.largest", Clause: "CF-CR-05", Source: bounds, Requires: one, Once: true, Title: "a file of 16 MiB is read whole", Run: readLargest},
		{Suite: report.Contract, ID: "read.missing", Clause: "CF-CR-06", Source: operations, Requires: one, Title: "what is not there is not_found", Run: readMissing},
		{Suite: report.Contract, ID: "read.directory", Clause: "CF-CR-07", Source: operations, Requires: one, Title: "a directory is not_regular", Run: readDirectory},
		{Suite: report.Contract, ID: "read.symlink-out", Clause: "CF-CR-08", Source: admits, Requires: one, Title: "a symbolic link that leads out is refused as outside_root", Run: readLink},
		{Suite: report.Contract, ID: "read.symlink-parent", Clause: "CF-CR-09", Source: admits, Requires: one, Title: "so is a path through a linked directory", Run: readParent},
		{Suite: report.Contract, ID: "read.from-mount", Clause: "CF-CR-10", Source: admits, Requires: mounted, Title: "a staged file is read back from its mount", Run: readMount},
		{Suite: report.Contract, ID: "read.nested-mount", Clause: "CF-CR-11", Source: admits, Requires: mounted, Title: "a mount around a nested read-only one does not shadow it", Run: readNested},
		{Suite: report.Contract, ID: "read.over-bound", Clause: "CF-CR-12", Source: bounds, Requires: one, Title: "a maximum_bytes over 16 MiB is refused", Run: readOver},
		{Suite: report.Contract, ID: "read.afresh", Clause: "CF-CR-13", Source: operations, Requires: one, Title: "a file that has changed is read as it is now", Run: readAfresh},
		{Suite: report.Contract, ID: "read.like-named-root", Clause: "CF-CR-14", Source: admits, Requires: mounted,
			Title: "a link to a place whose name only begins like the root leads out of it", Run: readLikeNamed},
	}, batches()...)
}

// write makes path hold what printf makes of format. The probe stops if the
// workload cannot: what it needs is not there to be read.
func write(t *probe.T, m *probe.Machine, path, format string) {
	t.Control("workload-writes", sees(m, "printf '"+format+"' > "+path), "the workload could not write "+path)
}

// read is a read of the output tree with a bound that is far off.
func read(m *probe.Machine, path string) ([]byte, error) {
	return m.Read(path, sandbox.OutputPath, 1<<16)
}

// octal spells content for printf.
func octal(content []byte) string {
	var b bytes.Buffer
	for _, c := range content {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return b.String()
}

func readBytes(t *probe.T) {
	m, path, content := t.Machine(probe.Shape{}), inOutput(t), allBytes(t)
	write(t, m, path, octal(content))
	got, err := read(m, path)
	t.Need("read", err)
	t.Check("content", bytes.Equal(got, content), fmt.Sprintf("%q", content), got)
}

func readEmpty(t *probe.T) {
	m, path := t.Machine(probe.Shape{}), inOutput(t)
	write(t, m, path, "")
	got, err := read(m, path)
	t.Need("read", err)
	t.Check("content", len(got) == 0, "no content", got)
}

func readFits(t *probe.T) {
	m, path, content := t.Machine(probe.Shape{}), inOutput(t), t.Nonce()
	write(t, m, path, content)
	for _, more := range []int64{0, 1} {
		got, err := m.Read(path, sandbox.OutputPath, int64(len(content))+more)
		t.Need("read", err)
		t.Check("content", string(got) == content, content, got)
	}
}

// readTooLarge leaves what is over the bound to the standing check: here it
// matters that nothing was cut off in silence.
func readTooLarge(t *probe.T) {
	m, path, content := t.Machine(probe.Shape{}), inOutput(t), t.Nonce()
	write(t, m, path, content)
	most := int64(len(content)) - 1
	got, err := m.Read(path, sandbox.OutputPath, most)
	if err == nil && int64(len(got)) > most {
		t.Check("not-shortened", true, "", nil)
		return
	}
	t.Refused("not-shortened", err, &sandbox.Error{Kind: sandbox.FileTooLarge})
}

// readLargest has the file written through the port: what is in it is the
// matter of the suite of files.
func readLargest(t *probe.T) {
	room(t, 24<<20)
	m, path, content := t.Machine(probe.Shape{}), inOutput(t), ample(t, sandbox.MaxFileBytes)
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: content}))
	got, err := m.Read(path, sandbox.OutputPath, sandbox.MaxFileBytes)
	t.Need("read", err)
	t.Check("content", bytes.Equal(got, content), "16 MiB as they were written", got)
}

func readMissing(t *probe.T) {
	m := t.Machine(probe.Shape{})
	_, err := read(m, inOutput(t))
	t.Refused("refused", err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotFound})
}

func readDirectory(t *probe.T) {
	m, path := t.Machine(probe.Shape{}), inOutput(t)
	t.Control("workload-writes", sees(m, "mkdir "+path), "the workload could not make a directory")
	_, err := read(m, path)
	t.Refused("refused", err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotRegular})
}

// secret is a directory outside of every root, with one file in it that the
// workload can read and the trusted port must not.
func secret(t *probe.T, m *probe.Machine) (directory, name, content string) {
	directory, name, content = sandbox.HomePath+"/"+t.Nonce(), t.Nonce(), t.Nonce()
	t.Control("secret-made", sees(m, "mkdir "+directory+" && printf "+content+" > "+directory+"/"+name), "the workload cannot use its home directory")
	return directory, name, content
}

// followed is the control of a link that must be refused: the workload itself
// gets the secret through it.
func followed(t *probe.T, m *probe.Machine, path, content string) {
	t.Control("link-leads-out", holds(m, path, []byte(content)), "the workload does not see the secret through the link")
}

func readLink(t *probe.T) {
	m, path := t.Machine(probe.Shape{}), inOutput(t)
	directory, name, content := secret(t, m)
	m.Sh("ln -s " + directory + "/" + name + " " + path)
	followed(t, m, path, content)
	_, err := read(m, path)
	t.Refused("refused", err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot})
}

func readParent(t *probe.T) {
	m, link := t.Machine(probe.Shape{}), inOutput(t)
	directory, name, content := secret(t, m)
	m.Sh("ln -s " + directory + " " + link)
	followed(t, m, link+"/"+name, content)
	_, err := read(m, link+"/"+name)
	t.Refused("refused", err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonOutsideRoot})
}

func readMount(t *probe.T) {
	mount := mountAt(t, sandbox.AccessReadOnly)
	file := sandbox.FileWrite{Path: mount.MountPath + "/" + t.Nonce(), Content: []byte(t.Nonce())}
	m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{mount}, Files: []sandbox.FileWrite{file}})
	got, err := m.Read(file.Path, mount.MountPath, 1<<16)
	t.Need("read", err)
	t.Check("content", bytes.Equal(got, file.Content), string(file.Content), got)
}

func readNested(t *probe.T) {
	mounts(t, 2)
	outer := mountAt(t, sandbox.AccessReadWrite)
	inner := sandbox.Mount{MountPath: outer.MountPath + "/" + t.Nonce(), Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}
	around := sandbox.FileWrite{Path: outer.MountPath + "/" + t.Nonce(), Content: []byte(t.Nonce())}
	nested := sandbox.FileWrite{Path: inner.MountPath + "/" + t.Nonce(), Content: []byte(t.Nonce())}
	m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{outer, inner}, Files: []sandbox.FileWrite{around, nested}})
	got, err := m.Read(around.Path, outer.MountPath, 1<<16)
	t.Need("read-around", err)
	t.Check("around", bytes.Equal(got, around.Content), string(around.Content), got)
	got, err = m.Read(nested.Path, inner.MountPath, 1<<16)
	t.Need("read-nested", err)
	t.Check("nested", bytes.Equal(got, nested.Content), string(nested.Content), got)
}

func readAfresh(t *probe.T) {
	m, path := t.Machine(probe.Shape{}), inOutput(t)
	for range 2 { // the second is as long as the first
		content := t.Nonce()
		write(t, m, path, content)
		got, err := read(m, path)
		t.Need("read", err)
		t.Check("content", string(got) == content, content, got)
	}
}

// readLikeNamed finds out who compares the texts of paths: /a/bc begins with
// /a/b and is not in it.
func readLikeNamed(t *probe.T) {
	mounts(t, 2)
	root := mountAt(t, sandbox.AccessReadWrite)
	other := sandbox.Mount{MountPath: root.MountPath + t.Nonce(), Access: sandbox.AccessReadOnly, Kind: sandbox.MountProject}
	file := sandbox.FileWrite{Path: other.MountPath + "/" + t.Nonce(), Content: []byte(t.Nonce())}
	m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{root, other}, Files: []sandbox.FileWrite{file}})
	link := root.MountPath + "/" + t.Nonce()
	m.Sh("ln -s " + file.Path + " " + link)
	followed(t, m, link, string(file.Content))
	_, err := m.Read(link, root.MountPath, 1<<16)
	// Who follows every link out is the matter of another probe.
	directory, name, _ := secret(t, m)
	m.Sh("ln -s " + directory + "/" + name + " " + link + "s")
	_, far := m.Read(link+"s", root.MountPath, 1<<16)
	t.Check("refused", err != nil || far == nil, "a refusal", "the file of the other mount")
}

// readOver asks what the Runner would not: the provider enforces the bound too.
func readOver(t *probe.T) {
	m, path := t.Machine(probe.Shape{}), inOutput(t)
	write(t, m, path, t.Nonce())
	_, err := m.Read(path, sandbox.OutputPath, sandbox.MaxFileBytes+1)
	t.Check("refused", refused(err), "a refusal", err)
}
