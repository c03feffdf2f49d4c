package gvisor

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
)

// TestStdin feeds a program, closes its input, and reads its output to the end.
func TestStdin(t *testing.T) {
	m := start(t)
	for _, size := range []int{0, 1, 4095, 65536, 1 << 20, 16 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			data := make([]byte, size)
			random := rand.NewChaCha8([32]byte{byte(size)})
			random.Read(data)
			for script, want := range map[string]string{
				"sha256sum | cut -d' ' -f1": fmt.Sprintf("%x\n", sha256.Sum256(data)),
				"cat":                       string(data),
			} {
				inRead, inWrite := pipe(t)
				outRead, outWrite := pipe(t)
				c := sh(script)
				c.Stdin, c.Stdout = inRead, outWrite
				p, err := m.Exec(bounded(t), c)
				inRead.Close()
				outWrite.Close()
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					inWrite.Write(data)
					inWrite.Close()
				}()
				got, err := io.ReadAll(outRead)
				if err != nil || string(got) != want {
					t.Fatalf("%s: got %d bytes, %v; want %d", script, len(got), err, len(want))
				}
				if exit, err := p.Wait(bounded(t)); err != nil || exit != (machine.Exit{}) {
					t.Fatalf("%s: %+v %v", script, exit, err)
				}
			}
		})
	}
}

// TestManyExits runs many commands at once beside programs that keep making
// orphans, and demands every exit exactly.
func TestManyExits(t *testing.T) {
	m := start(t, func(s *machine.Spec) { s.Limits.Processes = 400 })
	ctx := bounded(t)
	storm, err := m.Exec(ctx, sh(`while :; do (setsid sh -c "exit 9" & setsid sh -c "kill -9 \$\$" &); done`))
	if err != nil {
		t.Fatal(err)
	}
	const commands, parallel = 200, 16
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range commands {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			code := (i * 37) % 256
			c := sh(fmt.Sprintf("exit %d", code))
			want := machine.Exit{Code: code}
			if i%10 == 0 {
				c, want = sh("kill -9 $$"), machine.Exit{Signal: "SIGKILL"}
			}
			p, err := m.Exec(ctx, c)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			for range 2 { // the answer can be read again
				if got, err := p.Wait(ctx); err != nil || got != want {
					t.Errorf("%d: got %+v, %v; want %+v", i, got, err, want)
				}
			}
		})
	}
	wg.Wait()
	if err := storm.KillTree(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "nothing is left of the storm", func() bool { return len(guests(t, m)) == 0 })
}

func TestWaitCancelled(t *testing.T) {
	m := start(t)
	p, err := m.Exec(bounded(t), sh("sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Wait(ctx); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if err := p.Signal(bounded(t), "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Wait(bounded(t)); err != nil || got.Signal != "SIGKILL" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestOutputEnd shows that output ends with the program and not before.
func TestOutputEnd(t *testing.T) {
	m := start(t)
	got := do(t, m, sh("echo out; echo err >&2; exit 3"))
	if got != (output{machine.Exit{Code: 3}, "out\n", "err"}) {
		t.Errorf("got %+v", got)
	}
	// With nothing given for its files, a program has /dev/null.
	p, err := m.Exec(bounded(t), sh("cat; echo lost; exit $?"))
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(bounded(t)); err != nil || exit != (machine.Exit{}) {
		t.Errorf("got %+v, %v", exit, err)
	}
}
