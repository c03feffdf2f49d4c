package contract

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// The probes of writing look at what arrived through the workload, by exit
// status alone: so no fault of reading and none of output can hide or show one
// of writing.
func writes() []probe.Probe {
	const operations = `contract "The operations", row writeFile`
	const admits = `contract "Paths, mounts, and what the Runner admits first"`
	const bounds = `contract "Bounds"`
	return []probe.Probe{
		{Suite: report.Contract, ID: "write.bytes-exact", Clause: "CF-CW-01", Source: operations, Title: "every one of the 256 byte values arrives", Run: writeBytes},
		{Suite: report.Contract, ID: "write.newlines-kept", Clause: "CF-CW-02", Source: operations, Title: "no line end is changed", Run: writeNewlines},
		{Suite: report.Contract, ID: "write.empty-file", Clause: "CF-CW-03", Source: operations, Title: "a file without content is a file", Run: writeEmpty},
		{Suite: report.Contract, ID: "write.overwrites", Clause: "CF-CW-04", Source: operations, Title: "a second write leaves nothing of the first", Run: writeTwice},
		{Suite: report.Contract, ID: "write.executable", Clause: "CF-CW-05", Source: `docs/divergences.md row 6`, Title: "the executable flag is kept, and only where it was set", Run: writeExecutable},
		{Suite: report.Contract, ID: "write.parents", Clause: "CF-CW-06", Source: admits, Title: "missing parents are made", Run: writeParents},
		{Suite: report.Contract, ID: "write.while-active", Clause: "CF-CW-07", Source: admits, Title: "the output tree stays writable when the machine is active", Run: writeActive},
		{Suite: report.Contract, ID: "write.outside-refused", Clause: "CF-CW-08", Source: operations, Level: report.Should,
			Title: "a path outside every mount and the output tree is refused, though the Runner asks first", Run: writeOutside},
		{Suite: report.Contract, ID: "write.largest", Clause: "CF-CW-09", Source: bounds, Once: true, Title: "files of 16 MiB and of one byte less arrive", Run: writeLargest},
		{Suite: report.Contract, ID: "write.too-large", Clause: "CF-CW-10", Source: bounds, Once: true, Title: "a file of one byte over 16 MiB is refused", Run: writeTooLarge},
		{Suite: report.Contract, ID: "write.into-mounts", Clause: "CF-CW-11", Source: admits, Requires: []report.Token{report.Mounts},
			Title: "every declared mount takes its files while provisioning", Run: writeMounts},
		{Suite: report.Contract, ID: "write.nested-mount-sealed", Clause: "CF-CW-12", Source: admits, Requires: []report.Token{report.Mounts},
			Title: "a read-only mount inside a writable one is sealed like any other", Run: writeNested},
		{Suite: report.Contract, ID: "write.symlink-staged", Clause: "CF-CW-13", Source: `docs/divergences.md row 6`,
			Title: "a staged symbolic link is one, where the envelope says symlink_staging", Run: writeSymlink},
	}
}

// agreed is the status by which a script answers that something is so: no
// shell gives it by itself.
const agreed = 7

// sees reports whether condition, a shell command, holds for the workload.
func sees(m *probe.Machine, condition string) bool {
	return probe.Code(m.Sh(condition+fmt.Sprintf(" && exit %d; exit 1", agreed))) == agreed
}

// holds reports whether the workload finds exactly content at path.
func holds(m *probe.Machine, path string, content []byte) bool {
	return probe.Code(m.Sh(fmt.Sprintf(`sha256sum %s | while read s; do [ "$s" = '%x  %s' ] && exit %d; done`,
		path, sha256.Sum256(content), path, agreed))) == agreed
}

// inOutput is a new path in the output tree.
func inOutput(t *probe.T) string { return sandbox.OutputPath + "/" + t.Nonce() }

// mountAt is a new mount plan entry.
func mountAt(t *probe.T, access sandbox.Access) sandbox.Mount {
	return sandbox.Mount{MountPath: "/workspace/" + t.Nonce(), Access: access, Kind: sandbox.MountProject}
}

// allBytes is every byte value twice, up and down, so that no pair of bytes is
// one that somebody translates; it ends with what is no text.
func allBytes(t *probe.T) []byte {
	content := []byte(t.Nonce())
	for i := range 256 {
		content = append(content, byte(255-i), 'x')
	}
	for i := range 256 {
		content = append(content, byte(i))
	}
	return content
}

// staged writes content into the output tree of a machine that is then
// activated, and returns its path.
func staged(t *probe.T, contents ...[]byte) (*probe.Machine, string) {
	path := inOutput(t)
	m := t.Provision(probe.Shape{})
	for _, content := range contents {
		t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: content}))
	}
	m.Activate()
	return m, path
}

func writeBytes(t *probe.T) {
	content := allBytes(t)
	m, path := staged(t, content)
	t.Check("content", holds(m, path, content), "the bytes that were written", "other bytes, or none")
}

func writeNewlines(t *probe.T) {
	content := []byte(t.Nonce() + "\r\na\rb\nc\r\n\n")
	m, path := staged(t, content)
	t.Check("content", holds(m, path, content), "the line ends that were written", "others")
}

func writeEmpty(t *probe.T) {
	m, path := staged(t, []byte{})
	t.Check("there", sees(m, "[ -f "+path+" ]"), "a regular file", "none")
	t.Check("empty", !sees(m, "[ -s "+path+" ]"), "no content", "some")
}

func writeTwice(t *probe.T) {
	first, second := []byte(t.Nonce()+t.Nonce()), []byte(t.Nonce())
	m, path := staged(t, first, second)
	t.Check("content", holds(m, path, second), "the second content alone", "something else")
	// Of the same length: who compares sizes to save a copy leaves the old one.
	third := []byte(t.Nonce())
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: third}))
	t.Check("same-length", holds(m, path, third), "the third content", "something else")
}

func writeExecutable(t *probe.T) {
	m := t.Provision(probe.Shape{})
	program, text := inOutput(t), inOutput(t)
	content := []byte("#!/bin/sh\n# " + t.Nonce() + "\n")
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: program, Content: content, Executable: true}))
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: text, Content: content}))
	m.Activate()
	t.Check("set", sees(m, "[ -x "+program+" ]"), "executable", "not executable")
	t.Check("not-set", !sees(m, "[ -x "+text+" ]"), "not executable", "executable")
	for _, f := range []sandbox.FileWrite{{Path: program, Content: content}, {Path: text, Content: content, Executable: true}} {
		t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, f))
		t.Check("changed", sees(m, "test -x "+f.Path) == f.Executable, "the flag of the second write", "that of the first")
	}
}

func writeParents(t *probe.T) {
	m := t.Provision(probe.Shape{})
	path := inOutput(t) + "/a/b/c/d/" + t.Nonce()
	content := []byte(t.Nonce())
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: content}))
	m.Activate()
	t.Check("content", holds(m, path, content), "the file below its new parents", "something else")
}

func writeActive(t *probe.T) {
	m := t.Machine(probe.Shape{})
	for range 5 {
		path, content := inOutput(t), []byte(t.Nonce())
		t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: content}))
		t.Check("content", holds(m, path, content), "the bytes that were written", "other bytes, or none")
	}
}

// writeOutside aims at a place that the workload can write to, so that it
// could see what should not be there.
func writeOutside(t *probe.T) {
	m := t.Machine(probe.Shape{})
	control, path := sandbox.HomePath+"/"+t.Nonce(), sandbox.HomePath+"/"+t.Nonce()
	t.Control("home-visible", sees(m, ": > "+control+" && [ -e "+control+" ]"), "the workload cannot use its home directory")
	err := t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: []byte(t.Nonce())})
	t.Check("refused", err != nil, "a refusal", "success")
	t.Check("nothing-there", !sees(m, "[ -e "+path+" ]"), "no file", "the file")
}

// room refuses to judge a machine whose disk cannot hold what the probe needs.
func room(t *probe.T, bytes int64) {
	if most := t.Envelope().MaximumResources.DiskBytes; most < bytes {
		t.NotHere(fmt.Sprintf("no machine of this target has a disk of %d bytes", bytes))
	}
}

// ample is a content of n bytes: its length is what matters, and it costs
// little to make.
func ample(t *probe.T, n int) []byte {
	return bytes.Repeat([]byte(t.Nonce()), n/16+1)[:n]
}

func writeLargest(t *probe.T) {
	room(t, 48<<20)
	m := t.Provision(probe.Shape{})
	sizes := []int{sandbox.MaxFileBytes - 1, sandbox.MaxFileBytes}
	paths := []string{inOutput(t), inOutput(t)}
	for n, path := range paths {
		t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Content: ample(t, sizes[n])}))
	}
	m.Activate()
	for n, path := range paths {
		t.Check("size", probe.Code(m.Sh(fmt.Sprintf("wc -c < %s | while read n; do [ $n -eq %d ] && exit %d; done", path, sizes[n], agreed))) == agreed,
			fmt.Sprintf("%d bytes", sizes[n]), "another size")
	}
}

func writeTooLarge(t *probe.T) {
	room(t, 48<<20)
	m := t.Provision(probe.Shape{})
	err := t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: inOutput(t), Content: ample(t, sandbox.MaxFileBytes+1)})
	t.Refused("refused", err, &sandbox.Error{Kind: sandbox.FileTooLarge})
}

// mounts refuses to judge a target that takes fewer than n.
func mounts(t *probe.T, n int64) {
	if most := t.Envelope().MaxMounts; most < n {
		t.NotHere(fmt.Sprintf("max_mounts is %d, and this needs %d", most, n))
	}
}

func writeMounts(t *probe.T) {
	mounts(t, 3)
	plan := []sandbox.Mount{mountAt(t, sandbox.AccessReadOnly), mountAt(t, sandbox.AccessReadWrite), mountAt(t, sandbox.AccessReadOnly)}
	plan[2].Kind = sandbox.MountMemory
	var files []sandbox.FileWrite
	for _, mount := range plan {
		files = append(files, sandbox.FileWrite{Path: mount.MountPath + "/" + t.Nonce(), Content: []byte(t.Nonce())})
	}
	m := t.Machine(probe.Shape{Mounts: plan, Files: files})
	for i, f := range files {
		t.Check("content", holds(m, f.Path, f.Content), "the file of mount "+fmt.Sprint(i), "other bytes, or none")
	}
}

// writeNested compares with a mount of its own: whether anything is sealed at
// all is the matter of another probe.
func writeNested(t *probe.T) {
	mounts(t, 3)
	outer, plain := mountAt(t, sandbox.AccessReadWrite), mountAt(t, sandbox.AccessReadOnly)
	inner := sandbox.Mount{MountPath: outer.MountPath + "/" + t.Nonce(), Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}
	name := "/" + t.Nonce()
	m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{outer, inner, plain}, Files: []sandbox.FileWrite{
		{Path: inner.MountPath + name, Content: []byte(t.Nonce())}, {Path: plain.MountPath + name, Content: []byte(t.Nonce())}}})
	writable := func(mount sandbox.Mount) bool {
		path := mount.MountPath + "/" + t.Nonce()
		return sees(m, "echo x > "+path+" && [ -e "+path+" ]")
	}
	t.Control("outer-writable", writable(outer), "the workload cannot write into its read-write mount")
	t.Check("sealed", !writable(inner) || writable(plain), "no write into the nested read-only mount", "a write")
}

func writeSymlink(t *probe.T) {
	if !t.Envelope().SymlinkStaging {
		t.NotHere("symlink_staging is false")
	}
	m := t.Provision(probe.Shape{})
	path, target := inOutput(t), t.Nonce()
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: path, Symlink: target}))
	m.Activate()
	t.Served("link", sees(m, "[ -L "+path+" ]"), "a symbolic link", "none")
	t.Served("target", probe.Code(m.Sh(fmt.Sprintf(`readlink %s | while read s; do [ "$s" = %s ] && exit %d; done`, path, target, agreed))) == agreed,
		"the target that was written", "another, or none")
}
