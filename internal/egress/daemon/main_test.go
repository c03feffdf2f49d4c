package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/checkfu/checkfu/internal/egress/confine"
)

const programName = "program"

// The test binary is a program where it is called so: one that serves until it is
// told to end, and says in its first line how many bytes its configuration has.
func TestMain(m *testing.M) {
	if os.Args[0] == programName {
		os.Exit(Main(Program{Name: programName, Summary: "Does nothing.", Prepare: prepare}, os.Args[1:]))
	}
	os.Exit(m.Run())
}

func prepare(in Inputs) (Service, error) {
	if string(in.Config) == "refuse" {
		return Service{}, errors.New("a: expected b,\ngot c")
	}
	return Service{Needs: confine.Needs{Files: 64}, Serve: func(ctx context.Context, l net.Listener) error {
		if _, err := fmt.Fprintf(in.Log, "%d bytes, %q\n", len(in.Config), in.Notes); err != nil {
			return err
		}
		if string(in.Config) == "fail" {
			return errors.New("it cannot")
		}
		<-ctx.Done()
		return errors.Join(l.Close(), errors.New("interrupted")) // of no interest: it was told to
	}}, nil
}

// inputs are a process's descriptors from 3 on, where they are good.
type inputs struct{ config, log, listener *os.File }

func open(t *testing.T, config string) inputs {
	t.Helper()
	file := func(text string) *os.File {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return f
	}
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
	return inputs{file(config), file(""), f}
}

func command(in inputs, args ...string) (cmd *exec.Cmd, out, said *bytes.Buffer) {
	out, said = new(bytes.Buffer), new(bytes.Buffer)
	cmd = &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{programName}, args...), Env: []string{}, Stdout: out, Stderr: said}
	cmd.ExtraFiles = []*os.File{in.config, in.log, in.listener}
	return cmd, out, said
}

var asUser = []string{"--uid", "65519", "--gid", "65519"}

// Each way not to begin has its code and one line; end of file on the standard
// input, which is at once here, is a good end.
func TestMainBegins(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the programs give it up")
	}
	for name, c := range map[string]struct {
		args      []string
		config    string
		change    func(*inputs)
		code      int
		out, said string // what is in it; "" is nothing at all
	}{
		"help":               {[]string{"--help"}, "", nil, 0, "  -uid id\n", ""},
		"version":            {[]string{"--version"}, "", nil, 0, "program " + Version + " go", ""},
		"an unknown flag":    {[]string{"--allow", "x"}, "", nil, 2, "", "flag provided but not defined: -allow"},
		"an argument":        {[]string{"x"}, "", nil, 2, "", `arguments: expected none, got "x"`},
		"nothing passed":     {asUser, "", func(in *inputs) { *in = inputs{} }, 2, "", "descriptor 3: expected to be passed"},
		"no log":             {asUser, "", func(in *inputs) { in.log = nil }, 2, "", "descriptor 4: expected to be passed"},
		"no listener":        {asUser, "", func(in *inputs) { in.listener = nil }, 2, "", "descriptor 5: expected to be passed"},
		"a file to listen":   {asUser, "", func(in *inputs) { in.listener = in.log }, 2, "", "descriptor 5: expected a listening socket"},
		"a refusal":          {asUser, "refuse", nil, 2, "", "program: a: expected b,; got c\n"},
		"as root":            {nil, "", nil, 2, "", "confine: identity: expected a user to become, got none, as root"},
		"too much":           {asUser, strings.Repeat("x", MaxConfig+1), nil, 2, "", "expected at most 1048576 bytes"},
		"as much as may be":  {asUser, strings.Repeat("x", MaxConfig), nil, 0, "1048576 bytes", ""},
		"nothing configured": {asUser, "", nil, 0, `0 bytes, ["user 65519" "landlock `, ""},
		"a failure":          {asUser, "fail", nil, 1, "4 bytes", "program: it cannot\n"},
	} {
		t.Run(name, func(t *testing.T) {
			in := open(t, c.config)
			if c.change != nil {
				c.change(&in)
			}
			cmd, out, said := command(in, c.args...)
			if c.code != ExitOK { // it must not be the end of file that ends it
				life, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				defer life.Close()
			}
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !holds(out, c.out) || !holds(said, c.said) {
				t.Errorf("code %d, %q, %q", code, out, said)
			}
			if said.Len() > 0 && strings.Count(said.String(), "\n") != 1 {
				t.Errorf("not one line: %q", said)
			}
		})
	}
}

func holds(b *bytes.Buffer, part string) bool {
	return strings.Contains(b.String(), part) && (part != "" || b.Len() == 0)
}

// The first line goes to the log and to the starter; a signal is a good end.
func TestMainEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the programs give it up")
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			in := open(t, "abc")
			cmd, _, said := command(in, asUser...)
			cmd.Stdout = nil
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			life, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer life.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			first := make([]byte, 1<<10)
			n, err := out.Read(first)
			if err != nil || !strings.HasPrefix(string(first[:n]), "3 bytes") {
				t.Errorf("%q, %v", first[:n], err)
			}
			if logged, err := os.ReadFile(in.log.Name()); err != nil || !bytes.Equal(logged, first[:n]) {
				t.Errorf("%q, %v", logged, err)
			}
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil || said.Len() > 0 {
				t.Errorf("%v, %q", err, said)
			}
		})
	}
}
