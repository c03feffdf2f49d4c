package runc

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// The benchmarks named Raw do the same with runc's own commands, so that the
// ratio in one run says what the driver costs or saves.

func BenchmarkStartDestroy(b *testing.B) {
	h := newHost(b)
	var start, destroy time.Duration
	for b.Loop() {
		s := h.spec(b)
		t0 := time.Now()
		m, err := h.driver.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := m.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		start, destroy = start+t1.Sub(t0), destroy+time.Since(t1)
	}
	b.ReportMetric(float64(start.Microseconds())/1000/float64(b.N), "ms/start")
	b.ReportMetric(float64(destroy.Microseconds())/1000/float64(b.N), "ms/destroy")
}

func BenchmarkExec(b *testing.B) {
	m := newHost(b).start(b)
	for b.Loop() {
		p, err := m.Exec(b.Context(), machine.Command{Argv: []string{"true"}, Env: env, Dir: "/"})
		if err != nil {
			b.Fatal(err)
		}
		if exit, err := p.Wait(b.Context()); err != nil || exit != (machine.Exit{}) {
			b.Fatal(exit, err)
		}
	}
}

func BenchmarkKillTree(b *testing.B) {
	m := newHost(b).start(b)
	for b.Loop() {
		p, err := m.Exec(b.Context(), machine.Command{Argv: []string{"sleep", "1000"}, Env: env, Dir: "/"})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.KillTree(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// rawContainer starts a container of the same spec, with sleep for an init.
func rawContainer(b *testing.B, h *host) (id string, remove func()) {
	s := h.spec(b)
	oci := ociSpec(s, filepath.Join(h.parent, s.ID))
	oci.Process.Args, oci.Process.Env = []string{"sleep", "1000"}, env
	oci.Hooks = nil
	oci.Linux.Seccomp.Syscalls[0].Names = append(oci.Linux.Seccomp.Syscalls[0].Names, "prlimit64")
	writeBundle(b, s, oci)
	raw(b, h, "run", "--detach", "--bundle", s.StateDir, s.ID)
	return s.ID, func() { raw(b, h, "delete", "--force", s.ID) }
}

func writeBundle(b *testing.B, s machine.Spec, oci *specs.Spec) {
	text, err := json.Marshal(oci)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.StateDir, "config.json"), text, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func raw(b *testing.B, h *host, args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "runc", append([]string{"--root", h.root}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		b.Fatal(args, err)
	}
}

func BenchmarkRawRunDelete(b *testing.B) {
	h := newHost(b)
	for b.Loop() {
		_, remove := rawContainer(b, h)
		remove()
	}
}

func BenchmarkRawExec(b *testing.B) {
	h := newHost(b)
	id, remove := rawContainer(b, h)
	defer remove()
	for b.Loop() {
		raw(b, h, "exec", id, "true")
	}
}
