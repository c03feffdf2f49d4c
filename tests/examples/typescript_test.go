package examples

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// typescript is the directory of a new skeleton, which is the example by another
// name: what is tested is what is handed out.
func typescript(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no node")
	}
	dir := filepath.Join(t.TempDir(), "acme")
	if err := scaffold.Write(dir, scaffold.Options{Language: "typescript", Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTypeScriptReadsVectors: it reads every request of the kit as the kit says,
// with the kit's own codec.
func TestTypeScriptReadsVectors(t *testing.T) {
	dir := typescript(t)
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
	needsNamespaces(t, filepath.Join(typescript(t), "run"))
}

// TestTypeScript: the day-one tier skips four of the nine and passes five, and
// what it has of the deeper suites holds, also by hand over its wire.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	p := spawn(t, filepath.Join(typescript(t), "run"))
	conforms(t, p, "typescript", conformance.Options{Suites: report.Suites(), Passes: 1, StreamBytes: 64 << 20, Patience: 2 * time.Minute}, 4, 5)
}

// TestTypeScriptTriesAgain: what failed to end once can be ended, also by a
// rollback, and a failure at the deadline does not end the provider.
func TestTypeScriptTriesAgain(t *testing.T) {
	const script = `
import { Instance } from "./instance.mjs";
import { Journal } from "./journal.mjs";
const broken = () => {
  let left = 1;
  const instance = new Instance("/none", { instance_id: "i", expires_at: "2000-01-01T00:00:00.000Z", mounts: [] });
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
	p := spawn(t, filepath.Join(typescript(t), "run"))
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image := envelope.FixedBaseImages[0]
	h, err := p.Provision(t.Context(), sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: "l", LeaseEpoch: 1, Target: envelope.Target(),
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: envelope.Tiers[0], BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, ResourceLimits: envelope.MaximumResources,
			RetentionMode: sandbox.RetentionEphemeralZDR,
		},
		Platform: envelope.Platforms[0], RootImage: image, Mounts: []sandbox.Mount{}, ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mark, over := strings.TrimPrefix(string(wire.NewProcessID()), "pr_"), make(chan struct{})
	t.Cleanup(func() { cancel(); <-over }) // the client tries to roll back for half a minute
	go func() {
		defer close(over)
		// Its answer does not come: that is the test.
		_, _ = p.Execute(ctx, h.Value.InstanceID, sandbox.Command{
			Executable: "/bin/sh", WorkingDirectory: "/", Environment: map[string]string{}, TimeoutSeconds: 600, OutputLimitBytes: 1,
			Arguments: []string{"-c", `trap '' TERM INT HUP; setsid sh -c 'while :; do read x </dev/full; done' "$0" & kill -STOP $$`, mark},
		})
	}()
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
