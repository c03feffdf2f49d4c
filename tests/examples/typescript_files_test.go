package examples

import (
	"slices"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// TestTypeScriptNamesWhatIsSpecial: a listing of a project names every leaf by what
// it is, and touches none of them.
func TestTypeScriptNamesWhatIsSpecial(t *testing.T) {
	t.Parallel()
	p, id := machine(t, typescriptRun(t))
	shell(t, p, id, guestPython, "-c", `
import os, socket
os.chdir("/mnt/session/outputs")
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("socket")
os.symlink("/etc/passwd", b"link\xff")
os.makedirs("a/b")
open("a/b/file", "w").write("x")
os.chmod("a/b/file", 0o755)
os.mkdir("empty")
`)
	got, err := p.Optional().ListProjectDir.ListProjectDir(t.Context(), id, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Leaf{
		{Path: "a/b/file", Type: sandbox.LeafRegular, Executable: true, Size: 1, Digest: "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
		{Path: "fifo", Type: sandbox.LeafFIFO}, {Path: "link\xff", Type: sandbox.LeafSymlink, Target: "/etc/passwd"}, {Path: "socket", Type: sandbox.LeafSocket},
	}
	if !slices.Equal(got.Leaves, want) {
		t.Errorf("%+v", got.Leaves)
	}
}

// TestTypeScriptMountsStay: a workload that moves the parent of a mount, and leaves a
// link in its place, leads no later mount astray: the next command finds the same
// sealed files, and they are read as before.
func TestTypeScriptMountsStay(t *testing.T) {
	t.Parallel()
	p := spawn(t, typescriptRun(t))
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := request(envelope, sandbox.RetentionEphemeralZDR, "l")
	q.Profile.ResourceLimits = envelope.MaximumResources
	const outer, inner = "/workspace/outer", "/workspace/outer/a/inner"
	q.Mounts = []sandbox.Mount{
		{MountPath: outer, Access: sandbox.AccessReadWrite, Kind: sandbox.MountProject}, {MountPath: inner, Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit},
	}
	h, err := p.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	id := h.Value.InstanceID
	if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: inner + "/file", Content: []byte("sealed")}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	shell(t, p, id, "/bin/sh", "-ec", "cd "+outer+"; mv a b; ln -s /usr a")
	s := shell(t, p, id, "/bin/sh", "-ec", "cd "+outer+"; cat b/inner/file; ! 2>&- >b/inner/file; ls /usr/inner 2>&- || echo none")
	if string(s.Stdout) != "sealednone\n" {
		t.Errorf("%q", s.Stdout)
	}
	data, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: inner + "/file", AllowedRoot: inner, MaximumBytes: 99})
	if err != nil || string(data) != "sealed" {
		t.Errorf("%q, %v", data, err)
	}
}

// shell runs a command that succeeds.
func shell(t *testing.T, p *program, id sandbox.InstanceID, program string, arguments ...string) sandbox.Settlement {
	t.Helper()
	s, err := p.Execute(t.Context(), id, sandbox.Command{
		Executable: program, Arguments: arguments, WorkingDirectory: "/", Environment: map[string]string{}, TimeoutSeconds: 120, OutputLimitBytes: 4096,
	})
	if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
		t.Fatalf("%+v, %v: %s", s.Exit, err, s.Stderr)
	}
	return s
}
