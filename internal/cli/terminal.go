package cli

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/checkfu/checkfu/internal/guest"
)

// terminal is the one that a person sits at, while a program far away has it:
// each byte that is typed goes there, and each that comes from there is shown as
// it is. It is given back as it was on every way out of this process but SIGKILL
// and a fault of the runtime.
type terminal struct {
	in, out *os.File
	signals chan os.Signal
	quit    chan struct{}
	ended   sync.WaitGroup

	mu     sync.Mutex
	cooked *term.State // how it was; nil while it is so
}

// terminalOf gives the terminal of this process, or nil where it has none: both
// streams have to be one.
func (a *app) terminalOf() *terminal {
	in, isFile := a.stdin.(*os.File)
	out, alsoFile := a.stdout.(*os.File)
	if !isFile || !alsoFile || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &terminal{in: in, out: out}
}

// size is what it shows at the moment.
func (t *terminal) size() guest.TerminalSize {
	columns, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil {
		return guest.TerminalSize{}
	}
	return guest.TerminalSize{Rows: uint16(rows), Columns: uint16(columns)}
}

// lend makes the terminal raw until restore, and tells resized of each new size.
func (t *terminal) lend(resized func(guest.TerminalSize)) error {
	if err := t.raw(); err != nil {
		return err
	}
	t.signals, t.quit = make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(t.signals, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGQUIT, syscall.SIGABRT)
	t.ended.Go(func() {
		defer t.cook() // also on a panic, which ends the process
		for {
			select {
			case s := <-t.signals:
				t.take(s.(syscall.Signal), resized)
			case <-t.quit:
				return
			}
		}
	})
	return nil
}

// take does what a signal asks for. The keys that send the last three are the
// program's: these come from somebody else.
func (t *terminal) take(s syscall.Signal, resized func(guest.TerminalSize)) {
	switch s {
	case syscall.SIGWINCH:
		resized(t.size())
	case syscall.SIGCONT: // a shell may have used the terminal meanwhile
		_ = t.raw()
		resized(t.size())
	case syscall.SIGTSTP:
		t.cook()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	default: // an orderly end is as good
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}
}

func (t *terminal) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, err := term.MakeRaw(int(t.in.Fd()))
	if err == nil && t.cooked == nil {
		t.cooked = was
	}
	return err
}

func (t *terminal) cook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cooked != nil {
		// A terminal that has gone away takes nothing any more. What was typed and
		// not read yet was for the program, and so is what the terminal answered it:
		// a shell here would take that as a command. Last, so that nothing comes
		// between.
		_ = term.Restore(int(t.in.Fd()), t.cooked)
		_ = unix.IoctlSetInt(int(t.in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
		t.cooked = nil
	}
}

// restore ends the loan. It may be called twice, by one goroutine.
func (t *terminal) restore() {
	if t.quit != nil {
		signal.Stop(t.signals)
		close(t.quit)
		t.ended.Wait()
		t.quit = nil
	}
	t.cook()
}

// typed passes on what is typed, until the terminal goes away.
func (t *terminal) typed(to io.Writer) {
	defer t.cook()
	_, _ = io.Copy(to, struct{ io.Reader }{t.in})
}
