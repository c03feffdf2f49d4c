package nine

import (
	"os/exec"
	"testing"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/internal/suite/oracle"
)

// TestPuzzlesMeanTheSameEverywhere solves puzzles in the oracle's shell and in
// those of this host.
func TestPuzzlesMeanTheSameEverywhere(t *testing.T) {
	var shells [][]string
	for _, shell := range [][]string{{"/bin/sh"}, {"bash"}, {"busybox", "sh"}} {
		if _, err := exec.LookPath(shell[0]); err == nil {
			shells = append(shells, shell)
		}
	}
	solve := probe.Probe{ID: "puzzle", Suite: report.Nine, Run: func(pt *probe.T) {
		m := pt.Machine(probe.Shape{})
		for range 30 {
			script, answer := puzzle(pt)
			got := m.Sh(script)
			pt.Check("oracle", printed(got, answer+"\n"), answer, says(got))
			for _, shell := range shells {
				out, err := exec.CommandContext(pt.Context(), shell[0], append(shell[1:len(shell):len(shell)], "-c", script)...).CombinedOutput()
				pt.Check("host", err == nil && string(out) == answer+"\n", answer, string(out))
			}
		}
	}}
	target, _ := oracle.New("puzzle")
	rep := probe.Run(t.Context(), target, []probe.Probe{solve}, probe.Options{Passes: 1, Suites: []report.Suite{report.Nine}})
	if rep.ExitCode != report.ExitConformant {
		t.Errorf("%s %+v", rep.Reason, rep.Cases)
	}
	if len(shells) == 0 {
		t.Skip("no shell on this host to compare with")
	}
}

func TestCredentialsAreRecognised(t *testing.T) {
	for _, c := range []struct {
		line string
		want bool
	}{
		{"PATH=/usr/bin:/bin", false},
		{"HOSTNAME=3f2a", false},
		{"PWD=/", false},
		{"LANG=C.UTF-8", false},
		{"PROXY=http://127.0.0.1:3128", false},
		{"GITHUB_TOKEN=", true},
		{"aws_secret_access_key=x", true},
		{"GIT_ASKPASS=/bin/a", true},
		{"X=ghp_0123", true},
		{"X=cfu_run_0123", true},
		{"REMOTE=https://user:word@git.example.com/repo", true},
		{"KEY=-----BEGIN PRIVATE KEY-----", true},
		{"", false},
	} {
		if got := len(credentials([]byte(c.line+"\n"))) > 0; got != c.want {
			t.Errorf("%q: %v", c.line, got)
		}
	}
}
