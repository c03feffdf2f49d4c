package canary

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const holderName = "holder"

// The test binary is a process that holds a secret where it is told to, and says
// so; it gets the secret in a way that leaves it nowhere else.
func TestMain(m *testing.M) {
	if os.Args[0] == holderName {
		hold(os.Args[1])
	}
	os.Exit(m.Run())
}

var held []byte

func hold(where string) {
	secret, err := io.ReadAll(os.NewFile(3, "secret"))
	if err != nil {
		panic(err)
	}
	switch where {
	case "memory":
		held = secret
	case "closed memory": // that the process itself cannot read any more
		page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		copy(page, secret)
		if err := unix.Mprotect(page, unix.PROT_NONE); err != nil {
			panic(err)
		}
		held = page
	case "shared memory":
		fd, err := unix.MemfdCreate("", 0)
		if err != nil {
			panic(err)
		}
		all, err := unix.Mmap(fd, 0, sparse, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err = errors.Join(err, unix.Ftruncate(fd, sparse), unix.Close(fd)); err != nil {
			panic(err)
		}
		copy(all[sparse/2:], secret)
		copy(all[sparse-len(secret):], secret)
		held = all
	case "across pieces":
		// Over the border of what is read at once, wherever the region begins.
		held = bytes.Repeat(append(bytes.Clone(secret), make([]byte, 4000)...), 2<<20/4000)
	}
	if where != "memory" {
		clear(secret)
		runtime.GC()
	}
	if _, err := unix.EpollCreate1(0); err != nil { // as every server has one
		panic(err)
	}
	_, _ = os.Stdout.WriteString(".")
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(held)
	os.Exit(0)
}

// start starts a holder and answers once it holds.
func start(t *testing.T, where string, secret []byte, change func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.Write(secret); err != nil {
		t.Fatal(err)
	}
	w.Close()
	c := &exec.Cmd{Path: "/proc/self/exe", Args: []string{holderName, where}, Env: []string{}, ExtraFiles: []*os.File{r}, Stderr: os.Stderr}
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(c)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

func mint() []byte { return []byte("cfu_run_" + rand.Text()) }

// Each place is found in, and counted apart; and a process that holds the secret
// nowhere is clean, though it had it once.
func TestScan(t *testing.T) {
	file := func(t *testing.T, name string, text []byte) func(*exec.Cmd) {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.Write(text); err != nil {
			t.Fatal(err)
		}
		return func(c *exec.Cmd) { c.ExtraFiles = append(c.ExtraFiles, f) }
	}
	for _, c := range []struct {
		name, where string
		change      func(*testing.T, []byte) func(*exec.Cmd)
		found       func(Hits) bool
	}{
		{"nowhere", "", nil, func(h Hits) bool { return h.Total() == 0 && h.Scanned > 1<<20 }},
		{"memory", "memory", nil, func(h Hits) bool { return h.Memory >= 1 && h.Total() == h.Memory }},
		{"closed memory", "closed memory", nil, func(h Hits) bool { return h.Memory == 1 && h.Total() == 1 }},
		{"across pieces", "across pieces", nil, func(h Hits) bool { return h.Memory >= 2<<20/4000 && h.Total() == h.Memory }},
		{"environment", "", func(_ *testing.T, secret []byte) func(*exec.Cmd) {
			return func(c *exec.Cmd) { c.Env = []string{"TOKEN=" + string(secret)} }
		}, func(h Hits) bool { return h.Environ == 1 && h.Memory >= 1 && h.Cmdline+h.Names+h.Files == 0 }},
		{"arguments", "", func(_ *testing.T, secret []byte) func(*exec.Cmd) {
			return func(c *exec.Cmd) { c.Args = append(c.Args, string(secret)) }
		}, func(h Hits) bool { return h.Cmdline == 1 && h.Memory >= 1 && h.Environ+h.Names+h.Files == 0 }},
		{"name of a file", "", func(t *testing.T, secret []byte) func(*exec.Cmd) { return file(t, string(secret), nil) },
			func(h Hits) bool { return h.Names == 1 && h.Environ+h.Cmdline+h.Files == 0 }},
		// Regular files by their mode, that cannot be read.
		{"a namespace and a process", "", func(t *testing.T, _ []byte) func(*exec.Cmd) {
			f, err := os.Open("/proc/self/ns/net")
			if err != nil {
				t.Fatal(err)
			}
			fd, err := unix.PidfdOpen(os.Getpid(), 0)
			if err != nil {
				t.Fatal(err)
			}
			p := os.NewFile(uintptr(fd), "pidfd")
			t.Cleanup(func() { f.Close(); p.Close() })
			return func(c *exec.Cmd) { c.ExtraFiles = append(c.ExtraFiles, f, p) }
		}, func(h Hits) bool { return h.Total() == 0 }},
		{"in a file", "", func(t *testing.T, secret []byte) func(*exec.Cmd) {
			return file(t, "log", bytes.Repeat(append(make([]byte, 1000), secret...), 2000))
		}, func(h Hits) bool { return h.Files == 2000 && h.Total() == h.Files }},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := mint()
			var change func(*exec.Cmd)
			if c.change != nil {
				change = c.change(t, secret)
			}
			p := start(t, c.where, secret, change)
			got, err := Scan(t.Context(), p.Process.Pid, secret)
			if err != nil || !c.found(got) {
				t.Errorf("%+v, %v", got, err)
			}
			if other, err := Scan(t.Context(), p.Process.Pid, mint()); err != nil || other.Total() != 0 {
				t.Errorf("another secret: %+v, %v", other, err)
			}
		})
	}
}

// sparse is the size of a shared mapping of which two pages are used.
const sparse = 64 << 20

// The pages of shared memory that nobody has are not made by looking at them: they
// would count against whoever is held to a limit.
func TestScanMakesNoPages(t *testing.T) {
	secret := mint()
	p := start(t, "shared memory", secret, nil)
	before := shmem(t, p.Process.Pid)
	got, err := Scan(t.Context(), p.Process.Pid, secret)
	if err != nil || got.Memory != 2 || got.Total() != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if after := shmem(t, p.Process.Pid); after != before {
		t.Errorf("%s of shared memory, %s before", after, before)
	}
}

// shmem is what a process has of shared memory, in the kernel's words.
func shmem(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "RssShmem:")
	value, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(value)
}

// What could not be looked at is an error and never "clean".
func TestScanRefuses(t *testing.T) {
	p := start(t, "", mint(), nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	zombie := start(t, "", mint(), nil)
	if err := zombie.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	waitForEnd(t, zombie.Process.Pid)
	for name, c := range map[string]struct {
		ctx    context.Context
		pid    int
		secret string
		want   error
	}{
		"a short secret": {t.Context(), p.Process.Pid, "short", nil},
		"a long secret":  {t.Context(), p.Process.Pid, strings.Repeat("x", MaxSecret+1), nil},
		"no process":     {t.Context(), 0x3ffffff, string(mint()), syscall.ESRCH},
		"a zombie":       {t.Context(), zombie.Process.Pid, string(mint()), nil},
		"out of time":    {over, p.Process.Pid, string(mint()), context.Canceled},
	} {
		got, err := Scan(c.ctx, c.pid, []byte(c.secret))
		failed, ok := errors.AsType[*Error](err)
		if !ok || failed.PID != c.pid || c.want != nil && !errors.Is(err, c.want) || got != (Hits{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// waitForEnd waits until a child has ended, and leaves it a zombie.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

func FuzzRegions(f *testing.F) {
	own, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1000-2000 r--p 0 0:0 0 [heap]\nRss: 4 kB\nSwap: 0 kB\n"))
	f.Add([]byte("2000-1000 r--p\nRss: 4 kB\n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp\nRss: 0 kB\n"))
	f.Add([]byte("1000-2000\nRss: -4 kB\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := regions(bytes.NewReader(text))
		var sum int64
		for _, r := range all {
			if r.from < 0 || r.to < r.from {
				t.Fatalf("%+v", r)
			}
			sum += r.to - r.from
		}
		if err == nil && (sum < 0 || sum > MaxMemory) {
			t.Fatalf("%d bytes", sum)
		}
	})
}
