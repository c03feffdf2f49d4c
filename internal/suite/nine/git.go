package nine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// stageGitProject stages what a Git tree holds as the Runner does, byte by
// byte, and has the machine work out each blob's identity. The provider is
// handed no credential, so none may be in the machine.
func stageGitProject(t *probe.T) {
	root := "/workspace/" + t.Nonce()
	said := t.Nonce()
	blobs := map[string]sandbox.FileWrite{}
	add := func(name string, content []byte, executable bool) {
		blobs[name] = sandbox.FileWrite{Path: root + "/" + name, Content: content, Executable: executable}
	}
	script := "run-" + t.Nonce()
	add(script, []byte("#!/bin/sh\nprintf '%s' "+said+"\n"), true)
	add("binary "+t.Nonce(), binary(t), false)
	add("doc/é "+t.Nonce(), []byte("a\r\nb\r\n"+t.Nonce()), false) // line ends stay, and so does a missing last one
	add(t.Nonce(), nil, false)
	object := binary(t)
	id := blobID(object)
	add("objects/"+id[:2]+"/"+id[2:], object, false)

	shape := probe.Shape{Mounts: []sandbox.Mount{{MountPath: root, Access: sandbox.AccessReadOnly, Kind: sandbox.MountGit}}}
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		shape.Files = append(shape.Files, blobs[name])
	}
	m := t.Machine(shape)

	for _, f := range shape.Files {
		id, copied := blobID(f.Content), sandbox.OutputPath+"/"+t.Nonce()
		got := m.Sh(fmt.Sprintf(`printf 'blob %d\000' > %s && cat %s >> %s && sha256sum %s`, len(f.Content), copied, word(f.Path), copied, copied))
		t.Check("blob-identity", probe.Code(got) == 0 && strings.HasPrefix(string(got.Stdout), id), "blob "+id+" at "+f.Path, says(got))
		got = m.Sh("test -x " + word(f.Path))
		t.Check("executable", (probe.Code(got) == 0) == f.Executable, fmt.Sprintf("executable: %v of %s", f.Executable, f.Path), says(got))
	}
	got := m.Sh(word(root + "/" + script))
	t.Check("runs", printed(got, said), "the staged program's own output "+said, says(got))
	// A .git beside the blobs would mean that somebody fetched on their own.
	got = m.Sh("test -e " + root + "/.git")
	t.Check("not-fetched", probe.Code(got) == 1, "what was staged, and no .git", says(got))
	noCredential(t, m)
}

// noCredential looks where credentials of a sandbox are usually found: in the
// environment, which the Runner alone decides, and in well-known files.
func noCredential(t *probe.T, m *probe.Machine) {
	bare := probe.Command("env")
	mark := t.Nonce()
	bare.Environment = map[string]string{"CI_TOKEN": mark}
	got := m.Run(bare)
	must(t, "environment", slices.Contains(credentials(got.Stdout), "CI_TOKEN"), "the variable that was given", says(got))
	bare.Environment = map[string]string{}
	got = m.Run(bare)
	must(t, "environment", probe.Code(got) == 0, "the variables, if there are any", says(got))
	found := credentials(got.Stdout)
	t.Check("no-credential", len(found) == 0, "no credential in an empty environment", strings.Join(found, ", "))

	seen := sandbox.OutputPath + "/" + t.Nonce()
	fill(t, "written", m.ID, seen)
	got = m.Sh("test -e " + seen)
	must(t, "written", probe.Code(got) == 0, "a file that is there is seen", says(got))
	for _, home := range []string{sandbox.HomePath, "/root"} {
		for _, name := range []string{".git-credentials", ".netrc", ".config/gh/hosts.yml", ".ssh/id_rsa", ".ssh/id_ed25519", ".docker/config.json", ".aws/credentials"} {
			got := m.Sh("test -e " + home + "/" + name)
			t.Check("no-credential-file", probe.Code(got) != 0, "no "+home+"/"+name, says(got))
		}
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	got = m.Sh("test -e " + account)
	t.Check("no-credential-file", probe.Code(got) != 0, "no "+account, says(got))
}

// credentials names the variables that look like one, by key or by value.
func credentials(environment []byte) []string {
	var found []string
	for line := range strings.Lines(string(environment)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		name := strings.ToUpper(key)
		bad := slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY", "ASKPASS", "SSH_AUTH"},
			func(part string) bool { return strings.Contains(name, part) })
		bad = bad || slices.ContainsFunc([]string{"cfu_run_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "AKIA", "-----BEGIN", "Bearer "},
			func(start string) bool { return strings.HasPrefix(value, start) })
		if _, rest, ok := strings.Cut(value, "://"); ok && !bad { // user and password before the host of an address
			authority, _, _ := strings.Cut(rest, "/")
			bad = strings.Contains(authority, "@")
		}
		if bad {
			found = append(found, key)
		}
	}
	return found
}

// binary is bytes that no text conversion leaves alone.
func binary(t *probe.T) []byte {
	b := append(t.Bytes(1000+between(t, 0, 250)), "\x00\xff\xfe\r\n\x80"...)
	return append(b, t.Bytes(16)...)
}

// blobID is the object id that a Git repository of SHA-256 gives to content.
func blobID(content []byte) string {
	return digest(fmt.Appendf(nil, "blob %d\x00%s", len(content), content))
}
