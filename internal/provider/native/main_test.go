package native

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/image/imagetest"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/internal/provider/native/runc"
	"github.com/checkfu/checkfu/internal/provider/native/userns"
	"github.com/checkfu/checkfu/sandbox"
)

func TestMain(m *testing.M) {
	gvisor.Dispatch()
	userns.Dispatch()
	if dir := os.Getenv(envRootless); dir != "" {
		os.Exit(rootlessMain(m, dir))
	}
	if run := os.Getenv("CHECKFU_TEST_CRASH"); run != "" {
		crashChild(run)
	}
	if step := os.Getenv("CHECKFU_TEST_BUILD"); step != "" {
		buildChild(step)
	}
	if step := os.Getenv("CHECKFU_TEST_WARM"); step != "" {
		warmChild(step)
	}
	if mode := os.Getenv("CHECKFU_TEST_GUARD"); mode != "" {
		guardMain(mode)
	}
	if refused := os.Getenv("CHECKFU_TEST_REFUSED"); refused != "" {
		refusedChild(refused)
	}
	if os.Geteuid() != 0 {
		fmt.Println("SKIP native provider: needs root")
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "checkfu-native-test-")
	if err != nil {
		panic(err)
	}
	os.Chmod(dir, 0o711)
	shared.dir = dir
	code := m.Run()
	os.RemoveAll(dir)
	removeCgroups()
	os.Exit(code)
}

// shared is what is made once for all tests: the init and an image store.
var shared struct {
	dir  string
	once sync.Once
	init []byte
	img  image.Image
	st   *image.Store
}

func setup(t testing.TB) {
	t.Helper()
	shared.once.Do(func() {
		out := buildStatic(t, "github.com/checkfu/checkfu/cmd/checkfu-init")
		var err error
		if shared.init, err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
		if shared.st, err = image.Open(filepath.Join(shared.dir, "images"), image.Options{IDBase: IDBase}); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(shared.dir, "busybox.tar")
		if !userns.Inside() {
			archive = imagetest.Busybox(t, shared.dir)
		}
		if shared.img, err = shared.st.Import(context.Background(), archive); err != nil {
			t.Fatal(err)
		}
	})
	if shared.st == nil || shared.init == nil {
		t.Fatal("the shared set-up failed in another test")
	}
}

// buildStatic builds a command into the shared directory and returns its path.
func buildStatic(t testing.TB, pkg string) string {
	t.Helper()
	out := filepath.Join(shared.dir, "bin-"+filepath.Base(pkg))
	if _, err := os.Stat(out); err == nil && userns.Inside() {
		return out // root has built it
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, text)
	}
	return out
}

// eventually polls for what the kernel gives no event for.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// driverNames are those that tests run over: root's, or in a child the user's.
var driverNames = []string{"runsc", "runc"}

// drivers runs a test over the drivers, each against state of its own.
func drivers(t *testing.T, run func(t *testing.T, p *Provider)) {
	for _, name := range driverNames {
		t.Run(name, func(t *testing.T) { run(t, newProvider(t, name)) })
	}
}

func newDriver(t testing.TB, name, dir string) machine.Driver {
	t.Helper()
	switch name {
	case "runsc", machine.Rootless:
		d, err := gvisor.New(gvisor.Options{Root: filepath.Join(dir, "runsc"), CgroupParent: cgroupParent, Rootless: name == machine.Rootless})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return d
	default:
		return runc.New(runc.Options{Root: filepath.Join(dir, "runc"), CgroupParent: cgroupParent})
	}
}

func newProvider(t testing.TB, driver string) *Provider {
	t.Helper()
	setup(t)
	dir, err := os.MkdirTemp(shared.dir, driver+"-")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o711)
	p, err := New(Options{Dir: dir, Driver: newDriver(t, driver, dir), Images: shared.st, Init: shared.init})
	if err != nil {
		t.Fatal(err)
	}
	if lacks := p.Lacks(context.Background()); len(lacks) > 0 {
		t.Fatalf("this host lacks %v", lacks)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(p.instancesDir())
		if err != nil || len(left) > 0 {
			t.Errorf("instances left behind: %v %v", left, err)
		}
	})
	return p
}

// request asks p for an instance with the given mounts and small limits.
func request(p *Provider, mounts ...sandbox.Mount) sandbox.ProvisionRequest {
	if mounts == nil {
		mounts = []sandbox.Mount{}
	}
	envelope := Envelope(p.opt.Driver.Name(), runtime.GOARCH)
	return sandbox.ProvisionRequest{
		WorkspaceID: "ws", SessionID: "ses", RunID: "run", AttemptID: "att", LeaseID: "lease", LeaseEpoch: 3,
		Target: envelope.Target(),
		Profile: sandbox.Profile{
			ProfileID: "profile", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: shared.img.Reference,
			Packages: []sandbox.Package{}, NetworkPolicy: sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 2000, MemoryBytes: 256 << 20, DiskBytes: 64 << 20, MaxProcesses: 128, MaxDurationSeconds: 120},
			RetentionMode:  sandbox.RetentionEphemeralZDR,
		},
		Platform: envelope.Platforms[0], RootImage: shared.img.Reference, Mounts: mounts,
		ExpiresAt: sandbox.At(time.Now().Add(10 * time.Minute)),
	}
}

// provision gives an instance that the test's end destroys.
func provision(t testing.TB, p *Provider, r sandbox.ProvisionRequest) sandbox.InstanceID {
	t.Helper()
	h, err := p.Provision(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	id := h.Value.InstanceID
	t.Cleanup(func() {
		if err := p.Destroy(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	return id
}

// activated gives a running instance.
func activated(t testing.TB, p *Provider, mounts ...sandbox.Mount) sandbox.InstanceID {
	t.Helper()
	id := provision(t, p, request(p, mounts...))
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// sh runs a shell script to completion in the working directory /.
func sh(t testing.TB, p *Provider, id sandbox.InstanceID, script string) sandbox.Settlement {
	t.Helper()
	s, err := p.Execute(t.Context(), id, shell(script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return s
}

func shell(script string) sandbox.Command {
	return sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-c", script}, WorkingDirectory: "/",
		Environment: map[string]string{}, TimeoutSeconds: 60, OutputLimitBytes: 1 << 20,
	}
}

func mustExit(t testing.TB, s sandbox.Settlement, code int64) {
	t.Helper()
	if s.Exit.ExitCode == nil || *s.Exit.ExitCode != code {
		t.Fatalf("exit %s, want %d\nstdout: %s\nstderr: %s", showExit(s), code, s.Stdout, bytes.TrimSpace(s.Stderr))
	}
}

func showExit(s sandbox.Settlement) string {
	switch {
	case s.TimedOut:
		return "timeout"
	case s.Exit.ExitCode != nil:
		return fmt.Sprint(*s.Exit.ExitCode)
	}
	return s.Exit.Signal
}

// cgroupParent is this test's own and its children's, so that its census sees
// nobody else's, also where the same test runs twice on a host.
var cgroupParent = func() string {
	if parent := os.Getenv("CHILD_CGROUP"); parent != "" {
		return parent
	}
	return "checkfu-native-test-" + strconv.Itoa(os.Getpid())
}()

// removeCgroups takes away what is empty of it.
func removeCgroups() {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupParent)
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + cgroupParent)
	for _, dir := range append(v1, v2...) {
		os.Remove(dir)
	}
}

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
