package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/egress/confine"
	"github.com/checkfu/checkfu/internal/egress/daemon"
)

// The test binary is the guard where Launcher starts it: one that answers what it
// hears, or does what its configuration says instead.
func TestMain(m *testing.M) {
	if os.Args[0] == starterName {
		starterOfOne()
	}
	if os.Args[0] == string(GuardProgram) {
		os.Exit(daemon.Main(daemon.Program{Name: "echo", Summary: "Answers.", Prepare: prepare}, os.Args[1:]))
	}
	os.Exit(m.Run())
}

func prepare(in daemon.Inputs) (daemon.Service, error) {
	what, log := string(in.Config), in.Log
	if what == "refuse" {
		return daemon.Service{}, errors.New("allow: expected a list, got none")
	}
	return daemon.Service{
		Needs: confine.Needs{Files: 64},
		Serve: func(ctx context.Context, l net.Listener) error {
			switch what {
			case "fail":
				return errors.New("it cannot")
			case "silent":
				<-ctx.Done()
				return nil
			case "long":
				_, err := fmt.Fprintln(log, strings.Repeat("x", maxLine))
				return err
			}
			if _, err := fmt.Fprintf(log, "listens, %q\n", in.Notes); err != nil {
				return err
			}
			switch what {
			case "crash":
				panic("it falls")
			case "deaf":
				select {}
			case "flood":
				bounded := log.(interface{ SetWriteDeadline(time.Time) error })
				for {
					if err := bounded.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
						return err
					}
					if _, err := log.Write(make([]byte, 4096)); err != nil {
						return err
					}
				}
			}
			context.AfterFunc(ctx, func() { l.Close() })
			for {
				c, err := l.Accept()
				if err != nil {
					return err
				}
				go func() { _, _ = io.Copy(c, c); c.Close() }()
			}
		},
	}, nil
}

// self starts this binary.
func self(t testing.TB) Launcher {
	t.Helper()
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Launcher{Executable: f}
}

// listening is a listener to pass on, and its address.
func listening(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, l.Addr().String()
}

func logFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// start starts an echo and ends it with the test.
func start(t *testing.T, config string) (*Process, string) {
	t.Helper()
	l, addr := listening(t)
	p, err := self(t).Guard(t.Context(), []byte(config), l, logFile(t))
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // or nobody would refuse a connection once the process is gone
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, addr
}

func echo(t *testing.T, addr string) error {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	said := []byte("hello")
	if _, err := c.Write(said); err != nil {
		return err
	}
	got := make([]byte, len(said))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, said) {
		t.Errorf("%q", got)
	}
	return nil
}
