package nine

import (
	"fmt"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// stageSealExecute stages a read-only and, where there may be two, a read-write
// mount, tries to change what is sealed, and moves bytes out by both ways: by a
// command's output and by a read through the output tree. What needs readFile
// comes last and is a half of its own.
func stageSealExecute(t *probe.T) {
	sealed, open, out := "/workspace/"+t.Nonce(), sandbox.OutputPath, sandbox.OutputPath
	mounts := []sandbox.Mount{{MountPath: sealed, Access: sandbox.AccessReadOnly, Kind: sandbox.MountProject}}
	if t.Envelope().MaxMounts > 1 {
		open = "/workspace/" + t.Nonce()
		mounts = append(mounts, sandbox.Mount{MountPath: open, Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory})
	}
	content := lines(t)
	staged := []string{sealed + "/" + t.Nonce(), sealed + "/" + t.Nonce() + "/" + t.Nonce(), open + "/" + t.Nonce(), out + "/" + t.Nonce()}
	shape := probe.Shape{Mounts: mounts}
	for i, path := range staged {
		shape.Files = append(shape.Files, sandbox.FileWrite{Path: path, Content: content[i:]})
	}
	m := t.Machine(shape)

	for i, path := range staged {
		got := m.Sh("cat " + path)
		t.Check("stage", printed(got, string(content[i:])), "the staged bytes of "+path, says(got))
	}
	seal(t, m, sealed, staged[0], open, content)
	// What follows does not rest on the seal: its files are in the output tree.
	output(t, m, staged[3], content[3:])
	readBack(t, m, staged[0], staged[3], content[3:])
}

// seal tries to change a read-only mount from inside and through the port.
func seal(t *probe.T, m *probe.Machine, sealed, file, open string, content []byte) {
	mark := t.Nonce()
	for _, dir := range []string{open, sandbox.OutputPath} {
		fill(t, "writable", m.ID, dir+"/"+t.Nonce())
	}
	fresh := sealed + "/" + t.Nonce()
	for _, attempt := range []string{
		"echo " + mark + " > " + file, "echo " + mark + " >> " + file, "echo " + mark + " > " + fresh,
		"rm -f " + file, "mkdir " + fresh, "mv " + file + " " + fresh,
	} {
		got := m.Sh(attempt)
		t.Check("seal-refused", probe.Code(got) != 0, "a refusal of "+attempt, says(got))
	}
	got := m.Sh("cat " + file)
	t.Check("seal", printed(got, string(content)), "what was staged, unchanged", says(got))
	got = m.Sh("test -e " + fresh)
	t.Check("seal", probe.Code(got) == 1, "no new name in the sealed mount", says(got))

	// The trusted port narrows at activation, too.
	late := sandbox.FileWrite{Path: sandbox.OutputPath + "/" + t.Nonce(), Content: []byte(mark)}
	t.Need("write-output", t.Provider().WriteFile(t.Context(), m.ID, late))
	got = m.Sh("cat " + late.Path)
	must(t, "write-output", printed(got, mark), "the written bytes of "+late.Path, says(got))
	err := t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: fresh, Content: []byte(mark)})
	t.Check("write-scope", err != nil, "a refusal of a write into a mount of an active instance", "success")
}

// output runs commands whose answers have to be worked out, and holds them to
// their bound.
func output(t *probe.T, m *probe.Machine, file string, content []byte) {
	cut, code, diagnosis := between(t, 20, 200), int64(between(t, 3, 90)), t.Nonce()
	got := m.Sh(fmt.Sprintf("head -c %d %s | sha256sum; echo %s >&2; exit %d", cut, file, diagnosis, code))
	want := digest(content[:cut])
	t.Check("execute-output", probe.Code(got) == code && len(got.Stdout) > len(want) && string(got.Stdout[:len(want)]) == want && string(got.Stderr) == diagnosis+"\n",
		fmt.Sprintf("exit code %d, stdout %s…, stderr %q", code, want, diagnosis+"\n"), says(got))

	// A limit of no round number: exactly it is served, one byte more is not.
	limit := int64(1000 + between(t, 0, 250))
	c := probe.Command(fmt.Sprintf("head -c %d %s", limit, file))
	c.OutputLimitBytes = limit
	got, err := t.Provider().Execute(t.Context(), m.ID, c)
	t.Check("output-at-limit", err == nil && printed(got, string(content[:limit])), fmt.Sprintf("all %d bytes", limit), answer(got, err))
	c = probe.Command(fmt.Sprintf("head -c %d %s", limit+1, file))
	c.OutputLimitBytes = limit
	_, err = t.Provider().Execute(t.Context(), m.ID, c)
	t.Refused("output-bounded", err, &sandbox.Error{Kind: sandbox.OutputLimitExceeded, Operation: sandbox.OpExecute})
}

// readBack is the half that needs physically contained reads: of a file that
// was made there, and none through a link that leads outside.
func readBack(t *probe.T, m *probe.Machine, outside, file string, content []byte) {
	cut, path, link := between(t, 20, 200), sandbox.OutputPath+"/"+t.Nonce(), sandbox.OutputPath+"/"+t.Nonce()
	got := m.Sh(fmt.Sprintf("head -c %d %s > %s && ln -s %s %s && readlink %s", cut, file, path, outside, link, link))
	must(t, "written", printed(got, outside+"\n"), "a file and a link in the output tree", says(got))
	read, err := m.Read(path, sandbox.OutputPath, sandbox.MaxFileBytes)
	if err != nil {
		t.Check("read-file", false, "the bytes that a command wrote into the output tree", err)
		return
	}
	t.Check("read-file", string(read) == string(content[:cut]), "the bytes that a command wrote into the output tree", read)
	_, err = m.Read(link, sandbox.OutputPath, sandbox.MaxFileBytes)
	t.Refused("read-contained", err, &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpReadFile, Reason: sandbox.ReasonOutsideRoot})
}
