package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/checkfu/checkfu/internal/egress/matrix"
	"github.com/checkfu/checkfu/internal/keeper"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
)

// The test binary is checkfu where a script calls it so.
func TestMain(m *testing.M) {
	gvisor.Dispatch()
	if code, was := matrix.Main(); was {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){
		"checkfu": func() {
			os.Exit(Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

func TestScripts(t *testing.T) {
	commands := map[string]func(ts *testscript.TestScript, neg bool, args []string){
		"code":    exitsWith,
		"oneline": oneLineOfError,
		"nofiles": noFilesMatch,
	}
	maps.Copy(commands, sandboxCommands)
	maps.Copy(commands, servingCommands)
	maps.Copy(commands, receiptCommands)
	maps.Copy(commands, modelCommands)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			// Machines run under ids of their own and pass through.
			for _, dir := range []string{e.WorkDir, filepath.Dir(e.WorkDir)} {
				if err := os.Chmod(dir, 0o711); err != nil {
					return err
				}
			}
			e.Setenv("CHECKFU_STATE", e.WorkDir+"/state")
			e.Values[gatewayKey{}] = map[string]func(){}
			e.Defer(func() { endSessions(t, e.WorkDir+"/state") })
			e.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			for _, who := range []string{"AUTHOR", "COMMITTER"} {
				e.Setenv("GIT_"+who+"_NAME", "a")
				e.Setenv("GIT_"+who+"_EMAIL", "a@example.com")
			}
			return nil
		},
		Cmds: commands,
	})
}

// endSessions ends what a script that failed has left.
func endSessions(t *testing.T, dir string) {
	list, err := keeper.List(dir)
	for _, s := range list {
		err = errors.Join(err, keeper.End(context.Background(), dir, s.SessionID, keeper.Ending{}))
	}
	if err != nil {
		t.Error(err)
	}
}

// exitsWith runs "code N PROGRAM ARG…" and asks for exactly that exit code.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := err.(interface{ ExitCode() int }); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// oneLineOfError asks that the last command wrote one line to standard error,
// and that it begins as it should.
func oneLineOfError(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile("stderr")
	lines := 0
	for _, c := range text {
		if c == '\n' {
			lines++
		}
	}
	if lines != 1 || len(text) < 9 || text[:9] != "checkfu: " {
		ts.Fatalf("not one line of checkfu: %q", text)
	}
}

// noFilesMatch asks that no file below a directory holds a text.
func noFilesMatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: nofiles DIR TEXT")
	}
	root := os.DirFS(ts.MkAbs(args[0]))
	ts.Check(walkFor(root, args[1]))
}
