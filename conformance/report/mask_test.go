package report

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

func TestMask(t *testing.T) {
	command := sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-c", "a\n\xff"}, WorkingDirectory: "/", Stdin: []byte("in"),
		Environment: map[string]string{"B": "secret", "A": "", "é": "x"}, TimeoutSeconds: 5, OutputLimitBytes: 100,
	}
	code := int64(0)
	for _, c := range []struct {
		in   any
		want string
	}{
		{command, `{"arguments":["-c","a\\n\\xff"],"environment":{"A":"***","B":"***","\\u00e9":"***"},"executable":"/bin/sh","output_limit_bytes":100,"timeout_seconds":5,"working_directory":"/"}`},
		{&command.Arguments, `["-c","a\\n\\xff"]`},
		{sandbox.FileWrite{Path: "/a", Content: []byte("abc"), Executable: true},
			`{"content":{"bytes":3,"sha256":"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},"executable":true,"path":"/a","symlink":""}`},
		{sandbox.Settlement{Exit: sandbox.Exit{ExitCode: &code}, StartedAt: "s", FinishedAt: "f"},
			`{"exit":{"exit_code":0},"finished_at":"f","started_at":"s","stderr":{"bytes":0,"sha256":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"stdout":{"bytes":0,"sha256":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"timed_out":false}`},
		{sandbox.Released{Disposition: sandbox.DispositionDestroyed}, `{"disposition":"destroyed"}`},
		{sandbox.ReleaseRequest{}, `{}`},
		{sandbox.Swept{}, `{"instance_ids":[],"snapshot_ids":[]}`},
		{sandbox.InstanceID("i-1"), `"i-1"`},
	} {
		got := must(Mask(c.in))(t)
		if got != c.want {
			t.Errorf("%T\n got %s\nwant %s", c.in, got, c.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%T is no JSON", c.in)
		}
	}
}

// For what canonical itself can write, Mask writes the same.
func TestMaskIsCanonical(t *testing.T) {
	r := sandbox.ProvisionRequest{WorkspaceID: "w", LeaseEpoch: 3, Target: sandbox.Target{Provider: "p"}}
	r.Profile.Packages = []sandbox.Package{{Manager: "apt", Name: "git"}}
	for _, v := range []any{r, sandbox.Capabilities{}, sandbox.CleanupRequest{Now: "n"}, sandbox.Instance{}, sandbox.Command{}, sandbox.Snapshot{}} {
		want := string(must(canonical.Encode(v))(t))
		if got := must(Mask(v))(t); got != want {
			t.Errorf("%T\n got %s\nwant %s", v, got, want)
		}
	}
}

func TestNoSecretIsInAMask(t *testing.T) {
	const secret = "s3cr3t-canary"
	environment := map[string]string{"TOKEN": secret, "A_" + strings.Repeat("x", 300): strings.Repeat(secret, 1000)}
	for _, v := range []any{
		sandbox.Command{Environment: environment, Stdin: []byte(secret)},
		sandbox.ProcessRequest{Environment: environment},
		sandbox.FileWrite{Path: "/a", Content: []byte(secret)},
		[]sandbox.FileResult{{Content: []byte(secret)}},
		sandbox.Settlement{Stdout: []byte(secret), Stderr: []byte(secret)},
		[]byte(secret),
		environment,
		map[string][]string{"k": {secret}},
	} {
		got := must(Mask(v))(t)
		if strings.Contains(got, secret) || got == "" {
			t.Errorf("%T: %s", v, got)
		}
	}
	for _, v := range []any{map[int]string{1: secret}, struct{ A any }{secret}, struct{ A float64 }{1.5}, func() {}, nil, (*string)(nil)} {
		if got, err := Mask(v); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%T: %q, %v", v, got, err)
		}
	}
}

func TestMaskIsCutBetweenCharacters(t *testing.T) {
	for shift := range 4 {
		arguments := []string{strings.Repeat("a", shift)}
		for range 100 {
			arguments = append(arguments, strings.Repeat("é", 100))
		}
		got := must(Mask(arguments))(t)
		if len(got) > MaskedBytes || len(got) < MaskedBytes-6 || !strings.HasSuffix(got, "…") || strings.Contains(got, `\x`) {
			t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-20:])
		}
	}
	// A listing of the largest size costs no more than what is kept.
	entries := make([]sandbox.DirEntry, sandbox.MaxListEntries)
	if n := testing.AllocsPerRun(1, func() { must(Mask(entries))(t) }); n > 5000 {
		t.Errorf("%v allocations", n)
	}
}
