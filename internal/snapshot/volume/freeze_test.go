package volume

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/snapshot/treetest"
)

// splicer is a process that waits for input in the middle of a write, so that the
// kernel cannot freeze the filesystem. end ends it.
func splicer(t *testing.T, path string) (end func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestSplicerChild$")
	cmd.Env = append(os.Environ(), "VOLUME_TEST_SPLICE="+path)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		input.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(end)
	treetest.Eventually(t, "the splice", func() error {
		tasks, err := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/task/*/syscall")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if b, err := os.ReadFile(task); err == nil && strings.HasPrefix(string(b), strconv.Itoa(unix.SYS_SPLICE)+" ") {
				return nil
			}
		}
		return errors.New("not in it")
	})
	return end
}

// TestSplicerChild is the splicer.
func TestSplicerChild(t *testing.T) {
	path := os.Getenv("VOLUME_TEST_SPLICE")
	if path == "" {
		t.Skip("the child of splicer")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = unix.Splice(0, nil, int(f.Fd()), nil, 1<<20, 0)
	t.Fatal(err) // it ends with its input
}

// TestFreeze_DoesNotWaitForEver: it gives up, everybody else gives up before, and
// when the writer is gone nothing stays frozen.
func TestFreeze_DoesNotWaitForEver(t *testing.T) {
	needs(t)
	for name, give := range map[string]func(t *testing.T) context.Context{
		"by its own bound": func(t *testing.T) context.Context { return t.Context() },
		"by its caller's": func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := mounted(t, 8<<20, 64)
			v.settle = 100 * time.Millisecond
			end := splicer(t, v.at+"/file")
			f, err := v.Freeze(give(t))
			if err == nil {
				f.Thaw()
			}
			if !errors.Is(err, ErrRestless) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			end()
			// The freeze that was given up ends now, and thaws.
			written := make(chan error, 1)
			go func() { written <- os.WriteFile(v.at+"/other", []byte("x"), 0o600) }()
			select {
			case err := <-written:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("left frozen")
			}
			treetest.Eventually(t, "a freeze when the writer is gone", func() error {
				f, err := v.Freeze(t.Context())
				if err == nil {
					_, err = f.Thaw()
				}
				return err
			})
		})
	}
}

func TestFreeze_OfAClosedVolume(t *testing.T) {
	needs(t)
	_, v := mounted(t, 8<<20, 64)
	for range 2 {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := v.Freeze(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, v = mounted(t, 8<<20, 64)
	if f, err := v.Freeze(gone); err == nil {
		f.Thaw()
		t.Error("frozen for nobody")
	}
}

// TestFrozen_OutlivesItsMount: what is frozen is thawed wherever it is mounted by
// then, and whoever finds it so by its path.
func TestFrozen_OutlivesItsMount(t *testing.T) {
	needs(t)
	image, v := mounted(t, 8<<20, 64)
	f := freeze(t, v)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(v.at, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if frozen, err := Thaw(v.at); err != nil || frozen {
		t.Errorf("by a path where none is mounted: %v, %v", frozen, err)
	}
	if frozen, err := f.Thaw(); err != nil || !frozen {
		t.Errorf("by the one who froze it: %v, %v", frozen, err)
	}
	none(t, image) // so it was unmounted, which a frozen one never is

	image, v = mounted(t, 8<<20, 64)
	f = freeze(t, v)
	for _, want := range []bool{true, false} {
		if frozen, err := Thaw(v.at); err != nil || frozen != want {
			t.Errorf("by its path: %v, %v", frozen, err)
		}
	}
	for range 2 { // a copy of it is no moment's
		if frozen, err := f.Thaw(); err != nil || frozen {
			t.Errorf("by the one who froze it, too late: %v, %v", frozen, err)
		}
	}
	unmounted(t, v, image)
}
