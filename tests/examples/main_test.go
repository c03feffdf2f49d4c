// Package examples runs the conformance suite against the example providers, as
// a Runner reaches any provider: as programs of their own, over the wire.
package examples

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/conformancetest"
	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/scaffold"
	"github.com/checkfu/checkfu/internal/suite/lab"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
)

// Most of the time it is a clock that is waited for: side by side, also on two
// cores.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const token = "0123456789abcdef0123456789abcdef"

// noNamespaces is the exit code of a provider that cannot make machines here.
const noNamespaces = 4

// program is a provider that runs.
type program struct {
	*client.Client
	path  string
	dir   string // of its socket
	cmd   *exec.Cmd
	ended chan error
	state string
	said  bytes.Buffer
	// durable is one that leaves its journal, and no more than empty directories.
	durable bool
}

// spawn starts the program of a provider and waits until it answers. The test
// is skipped where this machine gives no namespaces.
func spawn(t *testing.T, path string) *program {
	t.Helper()
	return spawnOn(t, path, "")
}

// spawnOn is spawn on a state directory that is there; "" is a new one.
func spawnOn(t *testing.T, path, state string) *program {
	t.Helper()
	dir, err := os.MkdirTemp("", "provider") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	p := &program{path: path, dir: dir, state: cmp.Or(state, filepath.Join(dir, "state"))}
	err = p.start(t.Context())
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == noNamespaces {
		t.Skip(p.said.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.leave(t) })
	return p
}

// start runs the program and waits until it answers.
func (p *program) start(ctx context.Context) error {
	cmd, ended := exec.Command(p.path), make(chan error, 1)
	cmd.Env = append(os.Environ(), "CHECKFU_LISTEN=unix:"+p.socket(), "CHECKFU_TOKEN="+token, "CHECKFU_STATE="+p.state)
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { ended <- cmd.Wait() }()
	p.cmd, p.ended = cmd, ended
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var err error
		if p.Client, err = client.Dial(ctx, client.Options{Base: "unix:" + p.socket(), Token: token}); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("%w: %s", err, p.said.Bytes())
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			return fmt.Errorf("it does not answer: %w", err)
		case <-tick.C:
		}
	}
}

func (p *program) socket() string { return filepath.Join(p.dir, "socket") }

// crash kills a program. It returns when the program is no more.
func (p *program) crash() error {
	_ = p.Close()
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.ended
	if err := os.Remove(p.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// restart is a crash and a new start on the same state.
func (p *program) restart(ctx context.Context) (sandbox.Provider, error) {
	if err := p.crash(); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p.Client, nil
}

// TestOwnState: a provider that was given no directory takes away the one that
// it makes.
func TestOwnState(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(*testing.T) string{"go": goProgram, "python": python, "typescript": typescriptRun} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := filepath.Join(t.TempDir(), "script")
			text := "#!/bin/sh\nmkdir \"$CHECKFU_STATE\"\nTMPDIR=$CHECKFU_STATE CHECKFU_STATE= exec '" + path(t) + "'\n"
			if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			spawn(t, script) // and nothing is left of it
		})
	}
}

// leave ends a provider as the suite does, and wants nothing left of it.
func (p *program) leave(t *testing.T) {
	_ = p.Close()
	if p.cmd.ProcessState != nil {
		return // the test has ended it
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := p.end(t); err != nil {
		t.Error(err)
	}
	if p.said.Len() > 0 {
		t.Errorf("it said: %s", p.said.Bytes())
	}
	left, err := os.ReadDir(p.state)
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		inner, err := os.ReadDir(filepath.Join(p.state, e.Name()))
		if !p.durable || e.Name() != "journal" && (err != nil || len(inner) > 0) {
			t.Errorf("left in its state: %s, %v, %v", e, inner, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), p.state) {
		t.Errorf("left mounted, or %v", err)
	}
}

// end waits for a program that was told to end.
func (p *program) end(t *testing.T) error {
	bound := time.NewTimer(30 * time.Second)
	defer bound.Stop()
	select {
	case err := <-p.ended:
		return err
	case <-bound.C:
		_ = p.cmd.Process.Kill()
		t.Error("it does not end")
		return <-p.ended
	}
}

func killed(t *testing.T, path string) {
	p := spawn(t, path)
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.Provision(t.Context(), request(envelope, sandbox.RetentionEphemeralZDR, "l"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	mark := strings.TrimPrefix(string(wire.NewProcessID()), "pr_")
	_, err = p.Optional().OpenProcess.OpenProcess(t.Context(), h.Value.InstanceID, string(wire.NewProcessID()), sandbox.ProcessRequest{
		Executable: "/bin/sh", Arguments: []string{"-c", "trap '' TERM INT HUP; while :; do read x < /dev/full; done", mark}, WorkingDirectory: "/",
		Environment: map[string]string{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := running(mark); n == 0 {
		t.Fatal("the process is not there")
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.end(t)
	bound, tick := time.NewTimer(10*time.Second), time.NewTicker(10*time.Millisecond)
	defer bound.Stop()
	defer tick.Stop()
	for running(mark) > 0 {
		select {
		case <-tick.C:
		case <-bound.C:
			t.Fatal("a process lives on")
		}
	}
}

// request asks for the smallest machine of an envelope, without mounts.
func request(envelope sandbox.Capabilities, retention sandbox.RetentionMode, lease string) sandbox.ProvisionRequest {
	image := envelope.FixedBaseImages[0]
	return sandbox.ProvisionRequest{
		WorkspaceID: "w", SessionID: "s", RunID: "r", AttemptID: "a", LeaseID: lease, LeaseEpoch: 1, Target: envelope.Target(),
		Profile: sandbox.Profile{
			ProfileID: "p", ProfileVersion: 1, Tier: envelope.Tiers[0], BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}, ResourceLimits: envelope.MinimumResources,
			RetentionMode: retention,
		},
		Platform: envelope.Platforms[0], RootImage: image, Mounts: []sandbox.Mount{}, ExpiresAt: sandbox.At(time.Now().Add(time.Hour)),
	}
}

// running counts the processes with mark in their command line.
func running(mark string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if data, err := os.ReadFile(line); err == nil && bytes.Contains(data, []byte(mark)) {
			n++
		}
	}
	return n
}

// wire is the way to it by hand.
func (p *program) wire() *conformance.Wire {
	return &conformance.Wire{Host: "localhost", Token: token, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket())
	}}
}

// conforms holds a running provider to a golden report, and to how many of the
// nine it skips and passes.
func conforms(t *testing.T, p *program, golden string, o conformance.Options, skips, passes int) {
	t.Helper()
	network, err := lab.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	target := conformance.Target{
		Name: "exec:" + golden, Provider: p.Client, Remote: true, Wire: p.wire(), Image: envelope.FixedBaseImages[0], Network: network,
	}
	if p.durable {
		target.Restart = p.restart
	}
	rep := conformancetest.Golden(t, target, o, "testdata/"+golden+".golden")
	skipped, passed := 0, 0
	for _, row := range rep.Cases {
		switch row.Status {
		case report.Skip:
			skipped++
		case report.Pass:
			passed++
		}
	}
	exit := int64(report.ExitConformant)
	if len(o.Suites) > 0 && !slices.Contains(o.Suites, report.Nine) {
		exit = report.ExitIncomplete
	}
	if skipped != skips || passed != passes || o.Only == nil && rep.ExitCode != exit {
		t.Errorf("%d skipped, %d passed, exit code %d: %s", skipped, passed, rep.ExitCode, rep.Reason)
	}
}

// needsNamespaces runs a provider where there are none, and wants it to say so
// and to leave nothing.
func needsNamespaces(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath("setpriv"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and setpriv, to run without CAP_SYS_ADMIN")
	}
	state := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", program)
	cmd.Env = append(os.Environ(), "CHECKFU_LISTEN=unix:"+t.TempDir()+"/s", "CHECKFU_TOKEN="+token, "CHECKFU_STATE="+state)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != noNamespaces || !strings.Contains(string(out), "gives no namespaces") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left in its state: %v, %v", left, err)
	}
}

// everyTier holds each tier of a language to what it has of the nine, and the most
// that there is to every suite, also by hand over its wire and across crashes: two
// providers share them, for most of the time it is a clock that they wait for.
func everyTier(t *testing.T, language string, skeleton func(t *testing.T, tier string) string) {
	t.Helper()
	for _, c := range []struct {
		name, tier     string
		suites         []report.Suite
		skips, passing int
	}{
		{"durable", scaffold.Durable, []report.Suite{report.Nine, report.Contract, report.Wire}, 1, 8},
		{"durable-deep", scaffold.Durable, []report.Suite{report.Faults, report.Live, report.Files, report.Egress}, 9, 0},
		{"day-one", scaffold.DayOne, []report.Suite{report.Nine}, 4, 5},
		{"minimum", scaffold.Minimum, []report.Suite{report.Nine}, 6, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := spawn(t, skeleton(t, c.tier))
			p.durable = c.tier == scaffold.Durable
			conforms(t, p, language+"-"+c.name, conformance.Options{
				Suites: c.suites, Passes: 1, StreamBytes: 64 << 20, Patience: 2 * time.Minute,
			}, c.skips, c.passing)
		})
	}
}
