package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// modelCommands are the words of the scripts about model gateways.
var modelCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"gateway": gatewayInBackground,
}

// gatewayKey is where a script keeps what ends its gateways, by their names.
type gatewayKey struct{}

// gatewayInBackground runs "gateway NAME ARG…": checkfu model serve ARG…, whose
// first line goes to the file NAME, until "gateway NAME" ends it by SIGTERM, or
// the script does. It must end with 0.
func gatewayInBackground(ts *testscript.TestScript, _ bool, args []string) {
	running := ts.Value(gatewayKey{}).(map[string]func())
	if len(args) == 1 {
		running[args[0]]()
		return
	}
	path := ""
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), ":") {
		if at := filepath.Join(dir, "checkfu"); path == "" && exec.Command("test", "-x", at).Run() == nil {
			path = at
		}
	}
	cmd := exec.Command(path, append([]string{"model", "serve"}, args[1:]...)...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), "CHECKFU_STATE="+ts.Getenv("CHECKFU_STATE"), "FROM_ENV="+ts.Getenv("FROM_ENV"))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	bound := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	bound.Stop()
	if err != nil {
		_ = cmd.Wait()
		ts.Fatalf("no line: %v: %s", err, said.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(line), 0o600))
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		bound := time.AfterFunc(40*time.Second, func() { _ = cmd.Process.Kill() })
		defer bound.Stop()
		if err := cmd.Wait(); err != nil {
			ts.Fatalf("the gateway ended with %v: %s", err, said.String())
		}
	}
	running[args[0]] = end
	ts.Defer(end)
}
