package guest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// seat is somebody at a terminal of "pty", which is a real process.
type seat struct {
	*Keyboard
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Closer
	shown *os.File
	errs  *bytes.Buffer
	seen  string
}

func sit(t *testing.T, command ...string) *seat {
	t.Helper()
	cmd := guestCommand(t, PtyCommand("pty", TerminalSize{24, 80}, command)[1:]...)
	cmd.Env = append(cmd.Env, "PS1=> ", "PS2=", "PATH=/usr/bin:/bin", "ENV=", "HISTFILE=")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{Keyboard: NewKeyboard(in), t: t, cmd: cmd, in: in, shown: r, errs: &bytes.Buffer{}}
	cmd.Stdout, cmd.Stderr = w, s.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(60 * time.Second))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		r.Close()
	})
	return s
}

// sees waits until the terminal shows text, after what was waited for before, and
// gives what came before it.
func (s *seat) sees(text string) (before string) {
	s.t.Helper()
	buffer := make([]byte, 4096)
	for {
		if before, rest, ok := strings.Cut(s.seen, text); ok {
			s.seen = rest
			return before
		}
		n, err := s.shown.Read(buffer)
		s.seen += string(buffer[:n])
		if err != nil {
			s.t.Fatalf("%q is not seen: %v: %q, %s", text, err, s.seen, s.errs)
		}
	}
}

func (s *seat) types(text string) {
	s.t.Helper()
	if _, err := s.Write([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// leaves gives all that is shown until the end, and the exit.
func (s *seat) leaves() (string, int) {
	s.t.Helper()
	rest, err := io.ReadAll(s.shown)
	if err != nil {
		s.t.Fatalf("%v: %q", err, s.seen+string(rest))
	}
	s.cmd.Wait()
	return s.seen + string(rest), s.cmd.ProcessState.ExitCode()
}

func TestPty_AShellOnATerminal(t *testing.T) {
	s := sit(t, "/bin/sh", "-i")
	s.sees("> ")
	s.types("tty; stty size\n")
	s.sees("/dev/pts/")
	s.sees("24 80\r\n")
	if err := s.Resize(TerminalSize{50, 132}); err != nil {
		t.Fatal(err)
	}
	s.types("stty size\n")
	s.sees("50 132\r\n")

	// Ctrl-C ends what runs in front and leaves the shell.
	s.types("trap 'echo caught' INT; sh -c 'echo be''gun; exec sleep 1000'; echo left $?\n")
	s.sees("begun\r\n")
	s.types("\x03")
	s.sees("left 130\r\n")

	// An editor sees each byte as it is typed, and nothing is made of it.
	s.types("stty raw -echo; echo re''ady; dd bs=1 count=6 2>/dev/null | od -An -tx1; stty -raw echo\n")
	s.sees("ready")
	s.types("\x1b\x03\x04\x1a\r\x00")
	s.sees("1b 03 04 1a 0d 00")

	s.types("exit 7\n")
	if rest, code := s.leaves(); code != 7 {
		t.Errorf("exit %d, %q, %s", code, rest, s.errs)
	}
}

func TestPty_TheExitIsTheCommands(t *testing.T) {
	for _, c := range []struct {
		command []string
		code    int
		errs    string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"sh", "-c", "exit 3"}, 3, ""},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143, ""},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137, ""},
		{[]string{"no-such-program"}, 127, "no-such-program"},
		{[]string{"/etc/passwd"}, 126, "/etc/passwd"},
	} {
		s := sit(t, c.command...)
		shown, code := s.leaves()
		if code != c.code || shown != "" || !strings.Contains(s.errs.String(), c.errs) || c.errs == "" && s.errs.Len() > 0 {
			t.Errorf("%q: exit %d, %q, %q", c.command, code, shown, s.errs)
		}
	}
}

// All that a command said is shown, also what is still on its way as it ends,
// and whoever stays behind on its terminal is not waited for.
func TestPty_TheLastWord(t *testing.T) {
	const talk = "head -c 300000 /dev/zero | tr '\\0' x; echo end"
	want := strings.Repeat("x", 300000) + "end\r\n"
	if shown, code := sit(t, "sh", "-c", talk).leaves(); code != 0 || shown != want {
		t.Errorf("exit %d, %d bytes of %d", code, len(shown), len(want))
	}
	s := sit(t, "sh", "-c", "trap '' HUP; sleep 1000 & echo $!; "+talk)
	shown, code := s.leaves()
	pid, rest, _ := strings.Cut(shown, "\r\n")
	if n, err := strconv.Atoi(pid); err != nil {
		t.Fatalf("%.80q", shown)
	} else if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Error("who stays behind is gone: ", err)
	}
	if code != 0 || rest != want {
		t.Errorf("exit %d, %d bytes of %d", code, len(rest), len(want))
	}
}

// Whoever stays behind and is never quiet is not waited for either, and who has
// seen enough of it can say so.
func TestPty_NeverQuiet(t *testing.T) {
	talks := func(script string) (s *seat, shell int) {
		s = sit(t, "sh", "-c", "trap '' HUP; ("+script+") & echo $$ $!; exit 5")
		var behind int
		if _, err := fmt.Sscan(s.sees("\r\n"), &shell, &behind); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Kill(behind, syscall.SIGKILL) })
		return s, shell
	}
	// He ends by himself, so that who waits for him fails and does not hang.
	s, _ := talks("sleep 0.05; for i in $(seq 500); do echo tick || exit; sleep 0.02; done; echo over")
	if shown, code := s.leaves(); code != 5 || strings.Contains(shown, "over") {
		t.Errorf("exit %d, %d bytes: %.80q", code, len(shown), shown)
	}
	// Nobody looks, so that his last word never comes to an end.
	s, shell := talks("sleep 0.05; while echo tick; do :; done")
	tick := time.NewTicker(2 * time.Millisecond) // another's child has no event
	defer tick.Stop()
	for late := time.After(60 * time.Second); syscall.Kill(shell, 0) == nil; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the shell does not end")
		}
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Error("SIGTERM is not heard")
	}
}

// Whose input ends has gone away: the terminal is hung up, also on a command that
// does not look at it.
func TestPty_HangUp(t *testing.T) {
	s := sit(t, "sh", "-c", "trap 'exit 9' HUP; echo begun; while :; do sleep 0.05; done")
	s.sees("begun")
	s.in.Close()
	if shown, code := s.leaves(); code != 9 {
		t.Errorf("exit %d, %q, %s", code, shown, s.errs)
	}
	s = sit(t, "sh", "-c", "echo begun; exec cat")
	s.sees("begun")
	s.cmd.Process.Signal(os.Interrupt)
	if shown, code := s.leaves(); code != 129 {
		t.Errorf("exit %d, %q, %s", code, shown, s.errs)
	}
	s = sit(t, "cat")
	s.types("a\n")
	s.sees("a")
	s.in.(io.Writer).Write([]byte("\x07\x00\x00"))
	if shown, code := s.leaves(); code != 1 || !strings.Contains(s.errs.String(), "frame kind") {
		t.Errorf("exit %d, %q, %s", code, shown, s.errs)
	}
}
