package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

const processID = "pr_0123456789abcdef0123456789abcdef"

func open(t *testing.T, p *Provider, id sandbox.InstanceID, script string) sandbox.Process {
	t.Helper()
	proc, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{
		Executable: "/bin/sh", Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{"GREETING": "hello"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proc.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return proc
}

func exitWithin(t *testing.T, proc sandbox.Process, d time.Duration) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	exit, err := proc.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

func TestOpenProcess(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		t.Run("half-close is end of file, and the exit can be read again", func(t *testing.T) {
			proc := open(t, p, id, "wc -c; echo $GREETING; exit 7")
			io.Copy(proc.Input(), io.LimitReader(zeros{}, 5<<20))
			proc.Input().Close()
			out, err := io.ReadAll(proc.Output())
			if err != nil || string(out) != "5242880\nhello\n" {
				t.Errorf("%q %v", out, err)
			}
			for range 3 {
				if exit := exitWithin(t, proc, 10*time.Second); exit.ExitCode == nil || *exit.ExitCode != 7 {
					t.Errorf("exit %+v", exit)
				}
			}
		})
		t.Run("nothing is lost in 64 MiB each way", func(t *testing.T) {
			proc := open(t, p, id, "cat")
			const size = 64 << 20
			sent, got := sha256.New(), sha256.New()
			fed := make(chan struct{})
			go func() {
				defer close(fed)
				io.Copy(io.MultiWriter(proc.Input(), sent), io.LimitReader(&counter{}, size))
				proc.Input().Close()
			}()
			n, err := io.Copy(got, proc.Output())
			<-fed
			exitWithin(t, proc, 10*time.Second)
			if n != size || err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
				t.Errorf("%d of %d bytes, %v", n, size, err)
			}
		})
		t.Run("signals", func(t *testing.T) {
			for _, signal := range []sandbox.ControlSignal{sandbox.SignalInterrupt, sandbox.SignalTerminate, sandbox.SignalKill} {
				proc := open(t, p, id, "echo ready; exec sleep 60")
				io.ReadFull(proc.Output(), make([]byte, 6))
				if err := proc.Signal(t.Context(), signal); err != nil {
					t.Error(err)
				}
				if exit := exitWithin(t, proc, 10*time.Second); exit.Signal != string(signal) {
					t.Errorf("%s: %+v", signal, exit)
				}
				if err := proc.Signal(t.Context(), signal); err != nil {
					t.Errorf("after the exit: %v", err)
				}
			}
		})
		t.Run("one live process", func(t *testing.T) {
			proc := open(t, p, id, "exec sleep 60")
			_, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{Executable: "/bin/true", WorkingDirectory: "/"})
			if !errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Operation: sandbox.OpOpenProcess, Actual: sandbox.ActualProcessAlreadyOpen}) {
				t.Errorf("second open: %v", err)
			}
			if err := proc.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			open(t, p, id, "true")
		})
		t.Run("destroy ends the tree", func(t *testing.T) {
			proc := open(t, p, id, `for i in 1 2 3; do setsid sh -c 'trap "" TERM INT; sleep 91' & done; echo ready; wait`)
			io.ReadFull(proc.Output(), make([]byte, 6))
			for range 2 {
				if err := proc.Destroy(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if s := sh(t, p, id, "ps | grep -c '[s]leep 91'"); strings.TrimSpace(string(s.Stdout)) != "0" {
				t.Errorf("survivors: %s", s.Stdout)
			}
		})
		t.Run("a grandchild that holds stdout does not keep the reader", func(t *testing.T) {
			proc := open(t, p, id, "sleep 92 & echo done")
			out, err := io.ReadAll(proc.Output())
			if string(out) != "done\n" || err != nil {
				t.Errorf("%q %v", out, err)
			}
		})
		t.Run("standard error that nobody reads blocks nothing", func(t *testing.T) {
			proc := open(t, p, id, "dd if=/dev/zero bs=1M count=8 >&2 2>/dev/null; echo done")
			out, _ := io.ReadAll(proc.Output())
			if string(out) != "done\n" {
				t.Errorf("%q", out)
			}
			exitWithin(t, proc, 10*time.Second)
			if text, err := io.ReadAll(proc.Error()); err != nil || !bytes.HasPrefix(text, []byte("[checkfu: 7")) {
				t.Errorf("%.80q %v", text, err)
			}
		})
		t.Run("a slow reader is waited for", func(t *testing.T) {
			proc := open(t, p, id, "dd if=/dev/zero bs=64k count=32 2>/dev/null; echo finished >&2")
			text := make(chan string, 1)
			go func() { b, _ := io.ReadAll(proc.Error()); text <- string(b) }()
			select {
			case got := <-text:
				t.Errorf("2 MiB were taken without a reader: %q", got)
			case <-time.After(300 * time.Millisecond): // real backpressure: the guest is blocked
			}
			if n, _ := io.Copy(io.Discard, proc.Output()); n != 2<<20 {
				t.Errorf("%d bytes", n)
			}
			if got := <-text; got != "finished\n" {
				t.Errorf("%q", got)
			}
		})
		t.Run("evidence is the provider's own", func(t *testing.T) {
			proc := open(t, p, id, `printf '{"enforcement":{}}'`)
			e := proc.Evidence()
			if e.InstanceID != id || e.ProcessID != processID || e.Enforcement != sandbox.EnforcedBy(sandbox.RunnerEnforced) || e.NetworkMode != sandbox.NetworkNone {
				t.Errorf("%+v", e)
			}
		})
		t.Run("a missing program", func(t *testing.T) {
			_, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{Executable: "no-such-program", WorkingDirectory: "/"})
			if !errors.Is(err, &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonNotFound}) {
				t.Errorf("%v", err)
			}
			open(t, p, id, "true") // the place is free again
		})
		t.Run("instance destroyed under it", func(t *testing.T) {
			other := activated(t, p)
			proc := open(t, p, other, "exec sleep 60")
			if err := p.Destroy(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			exit, err := proc.Wait(ctx)
			if err == nil && exit.Signal != "SIGKILL" || ctx.Err() != nil {
				t.Errorf("an exit was invented: %+v %v", exit, err)
			}
		})
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// counter yields bytes that never repeat at a block border.
type counter struct{ n uint64 }

func (c *counter) Read(p []byte) (int, error) {
	for i := range p {
		c.n = c.n*6364136223846793005 + 1442695040888963407
		p[i] = byte(c.n >> 56)
	}
	return len(p), nil
}

// The truth about exit codes where a reaper that waits for anybody would mix
// them up.
func TestExecute_ParallelExitCodesBesideAnOrphanStorm(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p)
		storm := open(t, p, id, `while :; do (sleep 0.01 &) ; (true &) ; done`)
		const commands, workers = 200, 16
		work, wrong := make(chan int), make(chan string, commands)
		done := make(chan struct{})
		for range workers {
			go func() {
				for i := range work {
					code := int64(i*37+1) % 256
					s, err := p.Execute(t.Context(), id, shell(fmt.Sprintf("exit %d", code)))
					if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != code {
						wrong <- fmt.Sprintf("exit %d: %s %v", code, showExit(s), err)
					}
				}
				done <- struct{}{}
			}()
		}
		for i := range commands {
			work <- i
		}
		close(work)
		for range workers {
			<-done
		}
		close(wrong)
		for w := range wrong {
			t.Error(w)
		}
		if err := storm.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
