package examples

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// holds takes the three streams of another command and keeps them, until that
// one's tester says so or a minute is over.
const holds = `
import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind("/tmp/s.new")
s.listen(2)
s.settimeout(60)
os.rename("/tmp/s.new", "/tmp/s")
c, _ = s.accept()
held = socket.recv_fds(c, 1, 3)
c.sendall(b"x")
s.accept()
`

// hands gives them away and goes on for longer than it may.
const hands = `
import os, socket, time
while not os.path.exists("/tmp/s"):
    time.sleep(0.01)
s = socket.socket(socket.AF_UNIX)
s.connect("/tmp/s")
socket.send_fds(s, [b"x"], [0, 1, 2])
s.recv(1)
os.write(1, b"handed")
time.sleep(600)
`

const tells = `
import socket
socket.socket(socket.AF_UNIX).connect("/tmp/s")
`

// TestHandedStreams: a command that gives its streams to another, which lives,
// ends at its timeout all the same, and what it wrote is there.
func TestHandedStreams(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(*testing.T) string{
		"go": goProgram, "python": python, "typescript": typescriptRun,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, id := machine(t, path(t))
			run := func(ctx context.Context, script string, seconds int64, stdin []byte) (sandbox.Settlement, error) {
				return p.Execute(ctx, id, sandbox.Command{
					Executable: guestPython, Arguments: []string{"-c", script}, WorkingDirectory: "/", Environment: map[string]string{},
					TimeoutSeconds: seconds, OutputLimitBytes: 4096, Stdin: stdin,
				})
			}
			holder := make(chan error, 1)
			go func() {
				_, err := run(t.Context(), holds, 120, nil)
				holder <- err
			}()
			s, err := run(t.Context(), hands, 5, make([]byte, 1<<20))
			if err != nil || !s.TimedOut || string(s.Stdout) != "handed" {
				t.Errorf("%+v, %v", s, err)
			}
			select {
			case err := <-holder:
				t.Errorf("it ended no sooner than the one that holds its streams: %v", err)
			default:
				if s, err := run(t.Context(), tells, 30, nil); err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
					t.Errorf("%+v, %v", s, err)
				}
				if err := <-holder; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// guestPython is the one of the host that machines see too.
const guestPython = "/usr/bin/python3"

// machine starts a provider and gives an active instance of it.
func machine(t *testing.T, path string) (*program, sandbox.InstanceID) {
	t.Helper()
	if _, err := os.Stat(guestPython); err != nil {
		t.Skip("no " + guestPython)
	}
	p := spawn(t, path)
	envelope, err := p.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := request(envelope, sandbox.RetentionEphemeralZDR, "l")
	q.Profile.ResourceLimits = envelope.MaximumResources
	h, err := p.Provision(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Activate(t.Context(), h.Value.InstanceID); err != nil {
		t.Fatal(err)
	}
	return p, h.Value.InstanceID
}

// TestEnvironmentStaysInside: no process of the host has a value of the
// environment among its words, which everybody can read.
func TestEnvironmentStaysInside(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(*testing.T) string{"go": goProgram, "python": python} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, id := machine(t, path(t))
			mark := strings.TrimPrefix(string(wire.NewProcessID()), "pr_")
			value := mark + strings.Repeat("x", 100<<10) // more than a pipe holds
			over := make(chan error, 1)
			go func() {
				for range 60 {
					s, err := p.Execute(t.Context(), id, sandbox.Command{
						Executable: "/bin/sh", Arguments: []string{"-c", `echo "${#KEY}"`}, WorkingDirectory: "/",
						Environment: map[string]string{"KEY": value}, TimeoutSeconds: 60, OutputLimitBytes: 4096,
					})
					if want := strconv.Itoa(len(value)) + "\n"; err != nil || string(s.Stdout) != want {
						over <- fmt.Errorf("%+v, %w", s, err)
						return
					}
				}
				over <- nil
			}()
			for {
				if n := running(mark); n > 0 {
					t.Errorf("%d processes say it", n)
				}
				select {
				case err := <-over:
					if err != nil {
						t.Error(err)
					}
					return
				default:
				}
			}
		})
	}
}

// leases holds a lease on a file until it is told to stop.
const leases = `
import fcntl, os, signal, time
os.chdir("/mnt/session/outputs")
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open("leased", os.O_RDWR | os.O_CREAT)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("ready", "w").close()
while not os.path.exists("stop"):
    time.sleep(0.01)
`

// TestLeasedFile: a file on which the workload holds a lease keeps nobody
// waiting, and is not left out as if it were not there.
func TestLeasedFile(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(*testing.T) string{"go": goProgram, "python": python, "typescript": typescriptRun} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, id := machine(t, path(t))
			over := make(chan error, 1)
			go func() {
				s, err := p.Execute(t.Context(), id, sandbox.Command{
					Executable: guestPython, Arguments: []string{"-c", leases}, WorkingDirectory: "/", Environment: map[string]string{},
					TimeoutSeconds: 120, OutputLimitBytes: 4096,
				})
				if err == nil && (s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0) {
					err = fmt.Errorf("%+v: %s", s.Exit, s.Stderr)
				}
				over <- err
			}()
			read := func(name string) error {
				_, err := p.ReadFile(t.Context(), id, sandbox.FileRead{
					Path: sandbox.OutputPath + "/" + name, AllowedRoot: sandbox.OutputPath, MaximumBytes: 99,
				})
				return err
			}
			until(t, "no lease is held", func() bool { return read("ready") == nil })
			_, listed := p.Optional().ListDir.ListDir(t.Context(), id, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 99})
			for member, err := range map[string]error{"read_file": read("leased"), "list_dir": listed} {
				if failed := (*sandbox.Error)(nil); !errors.As(err, &failed) || failed.Reason != sandbox.ReasonChanged {
					t.Errorf("%s: %v", member, err)
				}
			}
			if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/stop", Content: []byte{}}); err != nil {
				t.Error(err)
			}
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestListingEnds: nobody digests a file of zeros without end for a caller who
// went; a provider that did would not end either, when its machine is told to.
func TestListingEnds(t *testing.T) {
	t.Parallel()
	p, id := machine(t, goProgram(t))
	s, err := p.Execute(t.Context(), id, sandbox.Command{
		Executable: "/bin/sh", Arguments: []string{"-c", "for n in 1 2 3 4; do truncate -s 60G /mnt/session/outputs/$n; done"}, WorkingDirectory: "/",
		Environment: map[string]string{}, TimeoutSeconds: 60, OutputLimitBytes: 4096,
	})
	if err != nil || s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	// The provider knows the deadline, too: whose clock is first is nobody's to say.
	_, err = p.Optional().ListDir.ListDir(ctx, id, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 99})
	if e := (*sandbox.Error)(nil); !errors.Is(err, context.DeadlineExceeded) && !(errors.As(err, &e) && e.Reason == sandbox.ReasonTimedOut) {
		t.Errorf("it listed, or %v", err)
	}
	_ = p.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}
