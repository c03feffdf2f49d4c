package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

var (
	work = sandbox.Mount{MountPath: "/workspace/repo", Access: sandbox.AccessReadWrite, Kind: sandbox.MountGit}
	data = sandbox.Mount{MountPath: "/data/in", Access: sandbox.AccessReadOnly, Kind: sandbox.MountProject}
)

func TestEnvelopeIsValid(t *testing.T) {
	for _, driver := range []string{"runsc", "runc"} {
		if err := Envelope(driver, "amd64").Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestStageSealExecute(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := provision(t, p, request(p, work, data))
		for path, executable := range map[string]bool{
			"/workspace/repo/run.sh": true, "/data/in/a/b/plain": false, sandbox.OutputPath + "/early": false,
		} {
			w := sandbox.FileWrite{Path: path, Content: []byte("#!/bin/sh\necho staged\n"), Executable: executable}
			if err := p.WriteFile(t.Context(), id, w); err != nil {
				t.Fatal(err)
			}
		}
		h, err := p.Activate(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if h.Value.State != sandbox.StateActive {
			t.Fatalf("state %s", h.Value.State)
		}
		s := sh(t, p, id, "/workspace/repo/run.sh && cat /data/in/a/b/plain && echo new > /workspace/repo/new && echo out > /mnt/session/outputs/out; id -u; id -un; pwd; echo $HOME")
		mustExit(t, s, 0)
		if want := "10001\ncheckfu\n/\n/home/checkfu\n"; !strings.HasSuffix(string(s.Stdout), want) {
			t.Errorf("stdout %q, want suffix %q", s.Stdout, want)
		}
		if s := sh(t, p, id, "echo x > /data/in/a/b/plain"); s.Exit.ExitCode == nil || *s.Exit.ExitCode == 0 {
			t.Error("a sealed mount was written")
		}
		content, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: sandbox.OutputPath + "/out", AllowedRoot: sandbox.OutputPath, MaximumBytes: 100})
		if err != nil || string(content) != "out\n" {
			t.Errorf("read %q %v", content, err)
		}
		err = p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: "/workspace/repo/late", Content: []byte("x")})
		if !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpWriteFile}) {
			t.Errorf("write into an active mount: %v", err)
		}
		list, err := p.ListProjectDir(t.Context(), id, sandbox.Listing{Root: work.MountPath, MaxEntries: 10})
		if err != nil || len(list.Leaves) != 2 || list.Leaves[0].Path != "new" || !list.Leaves[1].Executable {
			t.Errorf("listing %+v %v", list, err)
		}
		released, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{})
		if err != nil || released.Value.Disposition != sandbox.DispositionDestroyed {
			t.Errorf("release %+v %v", released.Value, err)
		}
	})
}

func TestExecuteTellsTheTruth(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		t.Run("exit codes", func(t *testing.T) {
			for _, code := range []int64{0, 1, 42, 137, 255} {
				mustExit(t, sh(t, p, id, fmt.Sprintf("exit %d", code)), code)
			}
		})
		t.Run("signals are signals", func(t *testing.T) {
			for _, signal := range []string{"KILL", "TERM", "SEGV"} {
				if s := sh(t, p, id, "kill -"+signal+" $$"); s.Exit.Signal != "SIG"+signal {
					t.Errorf("%s: %s", signal, showExit(s))
				}
			}
		})
		t.Run("a timeout keeps the output so far, apart", func(t *testing.T) {
			c := shell("echo a; echo b >&2; sleep 60 & sleep 60")
			c.TimeoutSeconds = 1
			s, err := p.Execute(t.Context(), id, c)
			if err != nil || !s.TimedOut || string(s.Stdout) != "a\n" || string(s.Stderr) != "b\n" {
				t.Errorf("%+v %v", s, err)
			}
			if s := sh(t, p, id, "ps | grep -c '[s]leep 60'"); strings.TrimSpace(string(s.Stdout)) != "0" {
				t.Errorf("survivors: %s", s.Stdout)
			}
		})
		t.Run("no survivor after an ordinary end", func(t *testing.T) {
			mustExit(t, sh(t, p, id, "setsid sh -c 'trap \"\" TERM; sleep 77' >/dev/null 2>&1 & sleep 0.2"), 0)
			if s := sh(t, p, id, "ps | grep -c '[s]leep 77'"); strings.TrimSpace(string(s.Stdout)) != "0" {
				t.Errorf("survivors: %s", s.Stdout)
			}
		})
		t.Run("a flood is refused at its limit", func(t *testing.T) {
			c := shell("yes")
			c.OutputLimitBytes = 64 << 10
			begin := time.Now()
			_, err := p.Execute(t.Context(), id, c)
			if !errors.Is(err, &sandbox.Error{Kind: sandbox.OutputLimitExceeded, Stream: sandbox.StreamStdout, Limit: 64 << 10}) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
		t.Run("a missing program is the caller's mistake", func(t *testing.T) {
			c := shell("")
			c.Executable = "/no/such"
			if _, err := p.Execute(t.Context(), id, c); !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotFound}) {
				t.Errorf("got %v", err)
			}
		})
		t.Run("standard input arrives whole", func(t *testing.T) {
			for _, size := range []int{0, 1, 1 << 20, 16 << 20} {
				c := shell("wc -c")
				c.Stdin = make([]byte, size)
				s, err := p.Execute(t.Context(), id, c)
				if err != nil || strings.TrimSpace(string(s.Stdout)) != fmt.Sprint(size) {
					t.Errorf("%d bytes: %q %v", size, s.Stdout, err)
				}
			}
		})
		t.Run("raw bytes come through unchanged", func(t *testing.T) {
			c := shell("cat; cat >&2 </dev/null")
			for range 600 { // crosses the 4 KiB and the 64 KiB borders
				for b := range 256 {
					c.Stdin = append(c.Stdin, byte(b))
				}
				c.Stdin = append(c.Stdin, "\U0001F600"...)
			}
			s, err := p.Execute(t.Context(), id, c)
			if err != nil || string(s.Stdout) != string(c.Stdin) {
				t.Errorf("%d bytes of %d came back, %v", len(s.Stdout), len(c.Stdin), err)
			}
		})
	})
}

// A state directory that the machines' own ids cannot reach is refused by
// name before anything is made.
func TestProvision_AnUnreachableStateDirectoryIsNamed(t *testing.T) {
	setup(t)
	closed, err := os.MkdirTemp(shared.dir, "closed-") // mode 0700
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Dir: filepath.Join(closed, "state"), Driver: newDriver(t, "runsc", shared.dir), Images: shared.st, Init: shared.init})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Provision(t.Context(), request(p))
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Reason != "host_lacks" || !strings.Contains(err.Error(), closed+" ") {
		t.Errorf("%v", err)
	}
}

// A write that is under way when activation begins is either there before the
// seal or refused, never put behind it.
func TestActivate_NoWriteLandsBehindTheSeal(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := provision(t, p, request(p, data))
		written := make(chan int)
		go func() {
			n := 0
			for ; p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: fmt.Sprintf("/data/in/%d", n), Content: []byte("x")}) == nil; n++ {
			}
			written <- n
		}()
		if _, err := p.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		n := <-written
		if s := sh(t, p, id, "ls /data/in | wc -l"); strings.TrimSpace(string(s.Stdout)) != fmt.Sprint(n) {
			t.Errorf("the guest sees %s of %d files", s.Stdout, n)
		}
	})
}

// TestTeardown_AFailureIsOfWhatWasAsked: whatever ends an instance, its failure
// names the member that was called; another member's error is a defect.
func TestTeardown_AFailureIsOfWhatWasAsked(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		staged, err := p.Provision(t.Context(), request(p))
		if err != nil {
			t.Fatal(err)
		}
		id := staged.Value.InstanceID
		live, err := p.Activate(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		in, err := p.find(sandbox.OpDestroy, id)
		if err != nil {
			t.Fatal(err)
		}
		in.removing <- struct{}{} // a removal is under way and does not settle
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for op, end := range map[sandbox.Operation]func() error{
			sandbox.OpProvision: func() error { return staged.Rollback(done) },
			sandbox.OpActivate:  func() error { return live.Rollback(done) },
			sandbox.OpRelease: func() error {
				_, err := p.Release(done, id, sandbox.ReleaseRequest{})
				return err
			},
			sandbox.OpDestroy: func() error { return p.Destroy(done, id) },
		} {
			var failed *sandbox.Error
			if err := end(); !errors.As(err, &failed) || failed.Operation != op {
				t.Errorf("%s: %v", op, err)
			}
		}
		<-in.removing
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}
