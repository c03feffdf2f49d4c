package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire/client"
)

// modes say how a live process is read through each configuration.
var modes = []struct {
	kind string
	poll bool
	of   []string // empty: all
}{
	{"default", false, nil},
	{"settings", false, nil},
	{"held", true, []string{"nginx"}},
}

func each(t *testing.T, test func(t *testing.T, p program)) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// A live process passes through every configuration of the page: echoes, 4 MiB
// both ways, the half-close, the exit. Followed, or polled where the proxy holds
// responses back, and as the page says.
func TestStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p program) {
		for _, m := range modes {
			if m.of != nil && !slices.Contains(m.of, p.name) {
				continue
			}
			t.Run(m.kind, func(t *testing.T) {
				t.Parallel()
				o := serve(t)
				x := begin(t, p, m.kind, o.address, nil)
				if x.secure {
					if got := x.protocol(t); got != "h2" {
						t.Errorf("the proxy speaks %q", got)
					}
				}
				var change func(*client.Options)
				if m.kind == "held" { // a client polls once it has missed two heartbeats, here soon
					change = func(o *client.Options) { o.Heartbeat = time.Second }
				}
				c := x.connect(t, change)
				echo(t, open(t, c, active(t, c), "cat"))
				follow, poll, _ := o.attachments()
				if m.poll != (poll > 0) || !m.poll && follow != 1 {
					t.Errorf("%d attachments followed, %d polled; want polls: %v", follow, poll, m.poll)
				}
				if x.secure && p.name == "nginx" {
					log, err := os.ReadFile(filepath.Join(x.dir, "protocols"))
					if err != nil || strings.Trim(string(log), "HTP/2.0\n") != "" || len(log) == 0 {
						t.Errorf("%q, %v", log, err)
					}
				}
			})
		}
	})
}

// echo speaks with a process that says what it hears.
func echo(t *testing.T, p sandbox.Process) {
	t.Helper()
	line, got := []byte("hello\n"), make([]byte, 6)
	var took []time.Duration
	for range 20 {
		began := time.Now()
		if _, err := p.Input().Write(line); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p.Output(), got); err != nil || !bytes.Equal(got, line) {
			t.Fatalf("%q %v", got, err)
		}
		took = append(took, time.Since(began))
	}
	t.Logf("echo: first after %s, p50 %s, longest of the others %s", took[0], slices.Sorted(slices.Values(took))[10], slices.Max(took[1:]))
	pump(t, p, 4<<20, nil)
}

// pump sends size bytes through cat and ends it. at is called when half of them
// are back.
func pump(t *testing.T, p sandbox.Process, size int, at func()) {
	t.Helper()
	sent := make([]byte, size)
	chacha := rand.NewChaCha8([32]byte{1})
	_, _ = chacha.Read(sent)
	written := make(chan error, 1)
	go func() {
		_, err := p.Input().Write(sent)
		if err == nil {
			err = p.Input().Close()
		}
		written <- err
	}()
	sum := sha256.New()
	n, err := io.CopyN(sum, p.Output(), int64(size/2))
	if at != nil {
		at()
	}
	if err == nil {
		var rest int64
		rest, err = io.Copy(sum, p.Output())
		n += rest
	}
	if want := sha256.Sum256(sent); err != nil || n != int64(size) || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d bytes of %d, %v", n, size, err)
	}
	if err != nil {
		_ = p.Destroy(context.Background())
	}
	if err := <-written; err != nil {
		t.Error("write:", err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
		t.Error(exit, err)
	}
}

// A proxy that is killed in mid-stream and comes back costs nothing: the stream
// goes on at its cursor.
func TestRestart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p program) {
		o := serve(t)
		x := begin(t, p, "settings", o.address, nil)
		c := x.connect(t, nil)
		pump(t, open(t, c, active(t, c), "cat"), 4<<20, func() {
			x.stop(t, syscall.SIGKILL)
			x.start(t)
		})
		if follow, poll, last := o.attachments(); follow < 2 || poll > 0 || last == 0 {
			t.Errorf("%d attachments followed, %d polled, the last from %d", follow, poll, last)
		}
	})
}

// patience is the read timeout of a proxy that has little.
const patience = "4s"

// Heartbeats carry a silent process over the read timeout of a proxy, and
// without them it is cut and taken up again.
func TestSilence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p program) {
		for _, beat := range []struct {
			name  string
			every time.Duration
			cut   bool
		}{{"heartbeats", time.Second, false}, {"none", 30 * time.Second, true}} {
			t.Run(beat.name, func(t *testing.T) {
				t.Parallel()
				o := serve(t)
				x := begin(t, p, "settings", o.address, func(s string) string {
					return strings.NewReplacer("75s", patience, "timeout=75", "timeout=4").Replace(s)
				})
				c := x.connect(t, func(o *client.Options) { o.Heartbeat = beat.every })
				p := open(t, c, active(t, c), "read A; echo awake")
				<-time.After(7 * time.Second) // the proxy's clock is nobody's to move
				if _, err := io.WriteString(p.Input(), "\n"); err != nil {
					t.Error(err)
				}
				said, err := io.ReadAll(p.Output())
				if err != nil || string(said) != "awake\n" {
					t.Errorf("%q, %v", said, err)
				}
				if follow, poll, _ := o.attachments(); beat.cut != (follow > 1) || poll > 0 {
					t.Errorf("%d attachments followed, %d polled", follow, poll)
				}
			})
		}
	})
}
