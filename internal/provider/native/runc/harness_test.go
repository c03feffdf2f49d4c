package runc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// built holds the programs that the tests put into machines.
var built struct {
	init    string
	hostile string
}

func TestMain(m *testing.M) {
	if owner := os.Getenv("CHECKFU_TEST_OWNER"); owner != "" {
		ownMachine(owner)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "checkfu-runc-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	built.init, built.hostile = filepath.Join(dir, "init"), filepath.Join(dir, "hostile")
	for to, pkg := range map[string]string{
		built.init:    "github.com/checkfu/checkfu/cmd/checkfu-init",
		built.hostile: "./testdata/hostile",
	} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			os.Stderr.Write(out)
			return 1
		}
	}
	return m.Run()
}

const idBase = 1 << 20

// host is one place to start machines from.
type host struct {
	driver machine.Driver
	root   string // of runc's state
	dir    string
	parent string
}

// newHost makes a root directory with busybox in it, or skips where the driver
// cannot run.
func newHost(t testing.TB) *host {
	t.Helper()
	dir := t.TempDir()
	// The machine's root user, who is nobody here, has to reach the root.
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	h := &host{root: filepath.Join(dir, "state"), dir: dir, parent: "/checkfu-test-" + newID(t)[:8]}
	h.driver = New(Options{Root: h.root, CgroupParent: h.parent})
	for _, lack := range h.driver.Probe(t.Context()) {
		if lack.Axis == "" {
			t.Skipf("runc driver: %s (%s)", lack.What, lack.Remedy)
		}
		t.Logf("lack: %+v", lack)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox (Debian package busybox-static)")
	}
	for _, d := range []string{"bin", "proc", "dev", "tmp", "job", "sealed", "run/checkfu"} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, busybox, filepath.Join(dir, "rootfs/bin/busybox"))
	copyFile(t, built.hostile, filepath.Join(dir, "rootfs/bin/hostile"))
	os.WriteFile(filepath.Join(dir, "rootfs/run/checkfu/init"), nil, 0o755)
	os.WriteFile(filepath.Join(dir, "rootfs/bin/notexec"), []byte("x"), 0o644)
	for _, name := range []string{"sh", "cat", "sleep", "true", "ps", "id", "setsid", "kill", "mkfifo", "touch", "ls", "dd", "env", "pwd", "unshare"} {
		os.Symlink("busybox", filepath.Join(dir, "rootfs/bin", name))
	}
	for _, d := range []string{"job", "sealed", "tmp"} {
		os.Mkdir(filepath.Join(dir, d), 0o755)
		os.Chown(filepath.Join(dir, d), idBase+machine.WorkloadID, idBase+machine.WorkloadID)
	}
	// The workload's own directory on the root itself.
	os.Mkdir(filepath.Join(dir, "rootfs/scratch"), 0o755)
	os.Chown(filepath.Join(dir, "rootfs/scratch"), idBase+machine.WorkloadID, idBase+machine.WorkloadID)
	t.Cleanup(func() {
		all, _ := hierarchies()
		for _, tree := range all {
			if err := os.Remove(filepath.Join(tree.mount, h.parent)); err != nil && !os.IsNotExist(err) {
				t.Errorf("left behind: %v", err)
			}
		}
	})
	return h
}

func copyFile(t testing.TB, from, to string) {
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newID(t testing.TB) string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (h *host) spec(t testing.TB) machine.Spec {
	id := newID(t)
	state := filepath.Join(h.dir, "machines", id)
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	return machine.Spec{
		ID: id, StateDir: state, Rootfs: filepath.Join(h.dir, "rootfs"), Hostname: "box", IDBase: idBase,
		Binds: []machine.Bind{
			{Source: built.init, Destination: machine.InitPath, ReadOnly: true},
			{Source: filepath.Join(h.dir, "tmp"), Destination: "/tmp"},
			{Source: filepath.Join(h.dir, "job"), Destination: "/job"},
			{Source: filepath.Join(h.dir, "sealed"), Destination: "/sealed", ReadOnly: true},
		},
		Limits: machine.Limits{CPUMillis: 2000, MemoryBytes: 256 << 20, Processes: 200},
	}
}

// start starts a machine that is destroyed, and proved gone, with the test.
func (h *host) start(t testing.TB, change ...func(*machine.Spec)) machine.Machine {
	t.Helper()
	s := h.spec(t)
	for _, c := range change {
		c(&s)
	}
	m, err := h.driver.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
		h.mustBeGone(t, s)
	})
	return m
}

// mustBeGone looks for anything that a machine may leave.
func (h *host) mustBeGone(t testing.TB, s machine.Spec) {
	t.Helper()
	all, _ := hierarchies()
	paths := []string{filepath.Join(h.root, s.ID), bundle(s.StateDir)}
	for _, tree := range all {
		paths = append(paths, filepath.Join(tree.mount, h.parent, s.ID), filepath.Join(tree.mount, h.parent, "start-"+s.ID))
	}
	for _, p := range paths {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("left behind: %s (%v)", p, err)
		}
	}
	if len(s.ID) != 32 {
		return // no machine could have it
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if cmdline, _ := os.ReadFile(d + "/cmdline"); bytes.Contains(cmdline, []byte(s.ID)) {
			t.Errorf("left behind: process %s %q", d, cmdline)
		}
	}
}

var env = []string{"PATH=/bin", "HOME=/tmp"}

// begin starts a command whose output is collected.
func begin(t testing.TB, m machine.Machine, stdin io.Reader, argv ...string) (machine.Process, *output) {
	t.Helper()
	p, o, err := tryBegin(m, stdin, argv...)
	if err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
	return p, o
}

func tryBegin(m machine.Machine, stdin io.Reader, argv ...string) (machine.Process, *output, error) {
	c := machine.Command{Argv: argv, Env: env, Dir: "/"}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer w.Close()
	c.Stdout, c.Stderr = w, w
	var in *os.File
	if stdin != nil {
		if c.Stdin, in, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
		defer c.Stdin.Close()
	}
	p, err := m.Exec(context.Background(), c)
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	if in != nil {
		go func() {
			io.Copy(in, stdin)
			in.Close()
		}()
	}
	o := &output{r: r, done: make(chan struct{})}
	go o.collect()
	return p, o, nil
}

type output struct {
	r    *os.File
	all  bytes.Buffer
	done chan struct{}
}

func (o *output) collect() {
	io.Copy(&o.all, o.r)
	o.r.Close()
	close(o.done)
}

func (o *output) String() string {
	select {
	case <-o.done:
		return o.all.String()
	case <-time.After(20 * time.Second):
		return "output never ended"
	}
}

// finish runs a command to its end.
func finish(t testing.TB, m machine.Machine, stdin io.Reader, argv ...string) (string, machine.Exit) {
	t.Helper()
	p, o := begin(t, m, stdin, argv...)
	exit, err := p.Wait(within(t, 60*time.Second))
	if err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
	return o.String(), exit
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), busy*d)
	t.Cleanup(cancel)
	return ctx
}

// busy is how much longer things may take on a host on which more than this test
// runs.
const busy = 6

// eventually polls for what the kernel has no event for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(busy * 10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func lines(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = value
	}
	return all
}
