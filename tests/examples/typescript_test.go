package examples

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// typescript is the directory of a new skeleton of the day-one tier, which is the
// example by another name: what is tested is what is handed out.
func typescript(t *testing.T) string {
	t.Helper()
	return filepath.Dir(typescriptSkeleton(t, scaffold.DayOne))
}

// typescriptRun is its program.
func typescriptRun(t *testing.T) string { return typescriptSkeleton(t, scaffold.DayOne) }

// typescriptSkeleton is the program of a skeleton of a tier.
func typescriptSkeleton(t *testing.T, tier string) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no node")
	}
	dir := filepath.Join(t.TempDir(), "acme")
	if err := scaffold.Write(dir, scaffold.Options{Language: "typescript", Tier: tier, Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "run")
}

// TestTypeScriptReadsVectors: it reads every request of the kit as the kit says,
// with the kit's own codec.
func TestTypeScriptReadsVectors(t *testing.T) {
	dir := filepath.Dir(typescriptSkeleton(t, scaffold.Durable)) // which looks at the most
	for program, want := range map[string]string{"kit/check.mjs": " scenarios, 0 failed\n", "selfcheck.mjs": " requests, 0 wrong\n"} {
		out, err := exec.CommandContext(t.Context(), "node", filepath.Join(dir, program)).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
	}
	kit, err := os.ReadFile(filepath.Join(dir, "kit", "check.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	_, codec, _ := strings.Cut(string(kit), "// --- the codec")
	codec, _, _ = strings.Cut(codec, "// --- the check")
	_, codec, _ = strings.Cut(codec, "\n")
	own, err := os.ReadFile(filepath.Join(dir, "codec.mjs"))
	if err != nil || len(codec) < 1000 || !strings.Contains(string(own), strings.TrimSpace(codec)) {
		t.Errorf("codec.mjs is not that of the kit any more, or %v", err)
	}
}

// TestTypeScriptTypes: the strict type check finds nothing. The compiler comes
// from the package manager, and where it does not come there is no check.
func TestTypeScriptTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches a compiler")
	}
	dir := typescript(t)
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("no npm, which fetches the compiler")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fetch := exec.CommandContext(ctx, "npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts",
		"--fetch-retries=0", "--fetch-timeout=20000", "--cache", t.TempDir(), "typescript@5", "@types/node@20")
	fetch.Dir, fetch.WaitDelay = dir, time.Second
	if out, err := fetch.CombinedOutput(); err != nil {
		t.Skipf("no compiler to be had: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/tsc"), "-p", dir).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// And it can find something.
	broken := filepath.Join(dir, "broken.mjs")
	if err := os.WriteFile(broken, []byte("/** @param {Wire.Command} c */\nexport const f = (c) => c.executables;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/tsc"), "-p", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "broken.mjs(2,") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTypeScriptNeedsNamespaces: a machine that gives none gets no provider,
// under the exit code that a suite does not take for a pass.
func TestTypeScriptNeedsNamespaces(t *testing.T) {
	needsNamespaces(t, typescriptRun(t))
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	everyTier(t, "typescript", typescriptSkeleton)
}

// TestTypeScriptTriesAgain: what failed to end once can be ended, also by a
// rollback, and a failure at the deadline does not end the provider.
func TestTypeScriptTriesAgain(t *testing.T) {
	const script = `
import { Instance } from "./instance.mjs";
import { Journal } from "./journal.mjs";
const broken = () => {
  let left = 1;
  const instance = new Instance("/none", { instance_id: "i", expires_at: "2000-01-01T00:00:00.000Z", mounts: [], profile: {} });
  instance.running.add({ kill: async () => { if (left-- > 0) throw new Error("once"); } });
  return instance;
};
const late = broken();
late.watch();
await new Promise((later) => setTimeout(later));
await late.end();
const instance = broken(), journal = new Journal(() => true);
await journal.perform("o", "provision", "", async (operation) => {
  operation.undo = () => instance.end();
  return {};
});
await journal.rollback("o", "provision").then(() => console.log("it did not fail"), () => {});
await journal.rollback("o", "provision");
console.log("done");
`
	cmd := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", script)
	cmd.Dir = typescript(t)
	var said strings.Builder
	cmd.Stderr = &said
	if out, err := cmd.Output(); err != nil || string(out) != "done\n" || !strings.Contains(said.String(), "i ends later: Error: once") {
		t.Errorf("%v\n%s%s", err, out, &said)
	}
}

// TestTypeScriptKilled: a provider that is killed takes every process of its
// machines with it, also one that has stopped itself.
func TestTypeScriptKilled(t *testing.T) {
	t.Parallel()
	p, id := machine(t, typescriptRun(t))
	mark := strings.TrimPrefix(string(wire.NewProcessID()), "pr_")
	_, err := p.Optional().OpenProcess.OpenProcess(t.Context(), id, string(wire.NewProcessID()), sandbox.ProcessRequest{
		Executable: "/bin/sh", WorkingDirectory: "/", Environment: map[string]string{},
		Arguments: []string{"-c", `trap '' TERM INT HUP; setsid sh -c 'while :; do read x </dev/full; done' "$0" & kill -STOP $$`, mark},
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the processes are not there", func() bool { return running(mark) >= 2 })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.end(t)
	until(t, "a process lives on", func() bool { return running(mark) == 0 })
}

// until waits for what comes soon.
func until(t *testing.T, otherwise string, holds func() bool) {
	t.Helper()
	bound, tick := time.NewTimer(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer bound.Stop()
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-bound.C:
			t.Fatal(otherwise)
		}
	}
}
