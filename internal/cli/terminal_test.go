package cli

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
)

// A program that asks the terminal something and ends leaves the answer unread:
// whoever reads from the terminal afterwards is not given it.
func TestTerminal_AnswersGoToNobodyElse(t *testing.T) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	person := os.NewFile(uintptr(fd), "terminal")
	defer person.Close()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	lent := &terminal{in: tty, out: tty}
	if err := lent.lend(func(guest.TerminalSize) {}); err != nil {
		t.Fatal(err)
	}
	defer lent.restore()

	const answer = "rm -rf x\r\n"
	person.WriteString(answer)
	tick := time.NewTicker(time.Millisecond) // the kernel passes it on by itself
	defer tick.Stop()
	for late := time.After(60 * time.Second); ; {
		if n, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCINQ); err != nil || n == len(answer) {
			break
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the answer does not arrive")
		}
	}
	lent.restore()
	if after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("the terminal was %+v and is %+v, %v", before, after, err)
	}
	person.WriteString("ls\n")
	line := make([]byte, 100)
	if n, err := tty.Read(line); string(line[:n]) != "ls\n" || err != nil {
		t.Errorf("%q, %v", line[:n], err)
	}
}
