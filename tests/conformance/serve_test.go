package conformance

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
)

// TestServeNative: the built command serves real machines, to the built suite
// and to a Runner that leaves one behind. SIGTERM ends the server with 0 and
// leaves nothing; after SIGKILL the next server has the same journal, and a
// sweep finds what was left.
func TestServeNative(t *testing.T) {
	t.Parallel()
	run, dir := product(t)
	socket := filepath.Join(dir, "s")
	serve := func() (cmd *exec.Cmd, said *bytes.Buffer) {
		said = &bytes.Buffer{}
		cmd = run()
		cmd.Args = []string{cmd.Args[0], "provider", "serve", "--provider", "native:runc", "--listen", "unix:" + socket, "--token-file", filepath.Join(dir, "token")}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		line, err := bufio.NewReader(out).ReadString('\n')
		late.Stop()
		if err != nil || line != "READY unix:"+socket+"\n" {
			t.Fatalf("%q, %v: %s", line, err, said)
		}
		return cmd, said
	}
	cmd, said := serve()
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	image := imageOf(t, run)

	suite := run()
	suite.Args = []string{cmd.Args[0], "sandbox", "test", "unix:" + socket, "--token-file", filepath.Join(dir, "token"), "--image", image, "--suite", "nine", "--repeat", "1",
		"--withhold", "network-allowlist"} // the lab of a provider that cannot be moved into one has no names to list
	var out bytes.Buffer
	suite.Stdout, suite.Stderr = &out, &out
	if err := suite.Start(); err != nil {
		t.Fatal(err)
	}
	if code := wait(t, suite); code != 3 || !strings.Contains(out.String(), "8 of 9 passed, 1 withheld") {
		t.Errorf("the suite ended with %d: %s", code, out.String())
	}

	connect := func() *client.Client {
		c, err := client.Dial(t.Context(), client.Options{Base: "unix:" + socket, Token: strings.TrimSpace(string(token))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := connect()
	e, err := c.Capabilities(t.Context())
	if err != nil || e.Enforcement != sandbox.EnforcedBy(sandbox.ProviderAttested) {
		t.Errorf("%+v, %v", e.Enforcement, err)
	}
	left := func(c *client.Client) sandbox.InstanceID {
		h, err := c.Provision(t.Context(), machine(e, image))
		if err == nil {
			_, err = c.Activate(t.Context(), h.Value.InstanceID)
		}
		if err != nil {
			t.Fatal(err)
		}
		return h.Value.InstanceID
	}
	left(c)
	if len(lab.Census(dir)) == 0 {
		t.Fatal("no machine came")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := wait(t, cmd); code != 0 {
		t.Errorf("exit %d: %s", code, said)
	}
	if all := lab.Census(dir); len(all) > 0 {
		t.Errorf("SIGTERM left %v", all)
	}
	if strings.Contains(said.String(), strings.TrimSpace(string(token))) {
		t.Error("the token was printed")
	}

	cmd, _ = serve()
	id := left(connect())
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	cmd, said = serve()
	c = connect()
	now := sandbox.At(time.Now().Add(time.Second))
	swept, err := c.Cleanup(t.Context(), sandbox.CleanupRequest{Now: now, OrphanedBefore: now})
	if err != nil || len(swept.InstanceIDs) != 1 || swept.InstanceIDs[0] != id {
		t.Errorf("swept %v, %v; want %s", swept.InstanceIDs, err, id)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := wait(t, cmd); code != 0 {
		t.Errorf("exit %d: %s", code, said)
	}
	if all := lab.Census(dir); len(all) > 0 {
		t.Errorf("left %v", all)
	}
}

// imageOf is the reference by which a provider with the state directory of run
// finds the busybox image.
func imageOf(t *testing.T, run func(...string) *exec.Cmd) string {
	t.Helper()
	cmd := run()
	cmd.Args = []string{cmd.Args[0], "image", "ls"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\S+/busybox@sha256:[0-9a-f]{64}`).Find(out)
	if name == nil {
		t.Fatalf("no image in %s", out)
	}
	return string(name)
}

// machine is a small one.
func machine(e sandbox.Capabilities, image string) sandbox.ProvisionRequest {
	return sandbox.ProvisionRequest{
		WorkspaceID: "ws", SessionID: "ses", RunID: "run", AttemptID: "att", LeaseID: "lease", LeaseEpoch: 1,
		Target: e.Target(), Platform: e.Platforms[0], RootImage: image, Mounts: []sandbox.Mount{}, ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
		Profile: sandbox.Profile{
			ProfileID: "prof", ProfileVersion: 1, Tier: e.Tiers[0], BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 500, MemoryBytes: 64 << 20, DiskBytes: 16 << 20, MaxProcesses: 32, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionEphemeralZDR,
		},
	}
}
