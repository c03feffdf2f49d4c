package gvisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// shared is made once for all tests: the guest init and a busybox root.
var shared struct {
	dir  string
	root string
	init string
	d    *Driver
	skip string // why no machine can be started here
}

func TestMain(m *testing.M) {
	Dispatch()
	if mode := os.Getenv("CHECKFU_TEST_OWNER"); mode != "" {
		ownerMain(mode)
	}
	code := run(m)
	os.Exit(code)
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		shared.skip = "not root"
		return m.Run()
	}
	for _, arg := range os.Args {
		if strings.HasPrefix(arg, "-test.fuzz=") {
			shared.skip = "fuzzing" // parsers only, in many processes
			return m.Run()
		}
	}
	dir, err := os.MkdirTemp("", "checkfu-gv")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared.dir = dir
	if err := prepare(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := shared.d.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
		code = 1
	}
	if _, err := os.Stat(shared.d.root); err == nil {
		left, _ := os.ReadDir(shared.d.root)
		fmt.Fprintln(os.Stderr, "left in the driver's root:", left)
		code = 1
	}
	return code
}

func prepare(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	shared.init = filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-trimpath", "-o", shared.init, "github.com/checkfu/checkfu/cmd/checkfu-init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build init: %w: %s", err, out)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("busybox (Debian package busybox-static) is needed: %w", err)
	}
	shared.root = filepath.Join(dir, "root")
	if err := makeRoot(shared.root, busybox); err != nil {
		return err
	}
	attack := filepath.Join(shared.root, "bin/attack")
	build = exec.Command("go", "build", "-trimpath", "-o", attack, "./testdata/attack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build attack: %w: %s", err, out)
	}
	program, err := os.ReadFile(attack)
	if err != nil {
		return err
	}
	suid := filepath.Join(shared.root, "bin/suid")
	if err := os.WriteFile(suid, program, 0o755); err != nil {
		return err
	}
	// The root is guest root's, as a provider's would be.
	if out, err := exec.Command("chown", "-hR", fmt.Sprintf("%d:%[1]d", testBase), shared.root).CombinedOutput(); err != nil {
		return fmt.Errorf("chown: %w: %s", err, out)
	}
	if err := os.Chmod(suid, 0o755|os.ModeSetuid); err != nil {
		return err
	}
	shared.d, err = New(Options{Root: filepath.Join(dir, "runsc"), CgroupParent: "checkfu-test"})
	return err
}

func makeRoot(root, busybox string) error {
	for _, d := range []string{"bin", "etc", "proc", "sys", "dev/shm", "tmp", "home", "run/checkfu", "run/guard"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, "run/checkfu/init"), nil, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "bin/text"), []byte("not a program\n"), 0o644); err != nil {
		return err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), program, 0o755); err != nil {
		return err
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(string(list)) {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func need(t testing.TB) {
	t.Helper()
	if shared.skip != "" {
		t.Skip("gvisor machine: " + shared.skip)
	}
}

func newID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	return hex.EncodeToString(b[:])
}

const testBase = 1_000_000

// newSpec is a machine with a writable /home and /tmp of the workload's own.
func newSpec(t testing.TB) machine.Spec {
	t.Helper()
	home := t.TempDir()
	// Above it lie directories of the test's own that are 0700.
	for _, p := range []string{home, filepath.Dir(home)} {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(home, testBase+machine.WorkloadID, testBase+machine.WorkloadID); err != nil {
		t.Fatal(err)
	}
	return specWith(newID(), filepath.Join(t.TempDir(), "state"), shared.root, shared.init, home)
}

func specWith(id, state, root, init, home string) machine.Spec {
	return machine.Spec{
		ID:       id,
		StateDir: state,
		Rootfs:   root,
		Binds: []machine.Bind{
			{Source: init, Destination: machine.InitPath, ReadOnly: true},
			{Source: home, Destination: "/home"},
		},
		Hostname: "box",
		IDBase:   testBase,
		Limits:   machine.Limits{CPUMillis: 2000, MemoryBytes: 512 << 20, Processes: 128},
	}
}

func start(t testing.TB, change ...func(*machine.Spec)) *gvisorMachine {
	t.Helper()
	need(t)
	s := newSpec(t)
	for _, f := range change {
		f(&s)
	}
	m, err := shared.d.Start(bounded(t), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Destroy(ctx); err != nil {
			t.Error(err)
		}
		clean(t, s.ID)
	})
	return m.(*gvisorMachine)
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// clean fails the test if anything of the machine is on the host.
func clean(t testing.TB, id string) {
	t.Helper()
	pids, err := shared.d.pids(id)
	if err != nil || len(pids) != 0 {
		t.Errorf("processes of %s left: %v (%v)", id, pids, err)
	}
	if dirs := cgroupDirs(shared.d.cgroup(id)); len(dirs) != 0 {
		t.Errorf("cgroups left: %v", dirs)
	}
	eventually(t, 5*time.Second, "no zombie child", func() bool {
		left := zombies(t)
		for _, pid := range left {
			// What a killed owner left; its machine was not this process's.
			if n, err := strconv.Atoi(pid); err == nil && orphans {
				_, _ = unix.Wait4(n, nil, unix.WNOHANG, nil)
			}
		}
		return len(left) == 0
	})
	for _, dir := range []string{shared.d.root, "/run", "/tmp"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), id) {
				t.Errorf("left: %s", filepath.Join(dir, e.Name()))
			}
		}
	}
}

// orphans is set while owners are killed: this process, a subreaper, inherits
// their children.
var orphans bool

// zombies are the dead children of this process that nobody has reaped.
func zombies(t testing.TB) (pids []string) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		after := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(after) > 1 && after[0] == "Z" && after[1] == fmt.Sprint(os.Getpid()) {
			pids = append(pids, filepath.Base(filepath.Dir(stat)))
		}
	}
	return pids
}

var env = []string{"PATH=/bin", "HOME=/home"}

func command(argv ...string) machine.Command {
	return machine.Command{Argv: argv, Env: env, Dir: "/home"}
}

func sh(script string) machine.Command { return command("sh", "-c", script) }

type output struct {
	machine.Exit
	out, err string
}

// do runs a command to its end.
func do(t testing.TB, m machine.Machine, c machine.Command) output {
	t.Helper()
	ctx := bounded(t)
	outRead, outWrite := pipe(t)
	errRead, errWrite := pipe(t)
	c.Stdout, c.Stderr = outWrite, errWrite
	p, err := m.Exec(ctx, c)
	outWrite.Close()
	errWrite.Close()
	if err != nil {
		t.Fatalf("exec %q: %v", c.Argv, err)
	}
	errText := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(errRead)
		errText <- b
	}()
	outText, err := io.ReadAll(outRead)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("wait %q: %v", c.Argv, err)
	}
	return output{exit, string(outText), string(bytes.TrimSpace(<-errText))}
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// eventually polls for a state for which the kernel gives no event.
func eventually(t testing.TB, bound time.Duration, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(bound); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

func kill(pid int) error { return unix.Kill(pid, unix.SIGKILL) }
