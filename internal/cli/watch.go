package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/checkfu/checkfu/conformance"
	"github.com/checkfu/checkfu/conformance/report"
)

// watch is what a person sees of a conformance run while it goes on: a line
// for each case as it ends, and what is running now. On a terminal the latter
// is a last line that moves; elsewhere it is a sign of life now and then, since
// many a build ends a job that says nothing.
type watch struct {
	to       io.Writer // nil shows no lines
	terminal *os.File  // nil if nobody watches

	mu      sync.Mutex
	step    conformance.Step
	began   time.Time
	pass    int             // last one that was announced
	reasons map[string]bool // of what was not run
	quit    chan struct{}
	ended   sync.WaitGroup
}

// How often the last line moves, and how often a long case says that it lives.
const (
	watchMoves = 200 * time.Millisecond
	watchLives = 30 * time.Second
)

func (a *app) watch(quiet bool) *watch {
	w := &watch{reasons: map[string]bool{}, quit: make(chan struct{})}
	if !quiet {
		w.to = a.stderr
	}
	every := watchLives
	if file, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		w.terminal, every = file, watchMoves
	}
	w.ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				w.tick(now)
			case <-w.quit:
				return
			}
		}
	})
	return w
}

// started is called when a probe begins.
func (w *watch) started(s conformance.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step, w.began = s, time.Now()
	if w.pass != s.Pass && s.Passes > 1 {
		w.print(fmt.Sprintf("pass %d of %d", s.Pass, s.Passes))
	}
	w.pass = s.Pass
	w.draw(w.began)
}

// row is called when a probe has ended. Of the deeper suites only what did not
// pass is worth a line, unless somebody watches; and of many that were not run
// for one reason the first.
func (w *watch) row(row report.Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if row.Suite != report.Nine && w.terminal == nil && (row.Status == report.Pass || row.Status == report.Skip) {
		return
	}
	if row.Status == report.Blocked || row.Status == report.Withheld && row.Suite != report.Nine {
		if w.reasons[row.Reason] {
			return
		}
		w.reasons[row.Reason] = true
	}
	w.print(report.Progress(row))
	if w.step.Done+1 == w.step.Total {
		w.step, w.began = conformance.Step{ID: "last sweep and census", Done: w.step.Total, Total: w.step.Total, Pass: w.step.Pass, Passes: w.step.Passes}, time.Now()
	}
}

// note is a line for a person who did something.
func (w *watch) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.print(line)
}

func (w *watch) print(line string) {
	if w.to != nil {
		w.erase()
		fmt.Fprintln(w.to, line)
	}
}

func (w *watch) erase() {
	if w.terminal != nil {
		fmt.Fprint(w.terminal, "\r\x1b[K")
	}
}

func (w *watch) tick(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.step.ID == "" {
		return
	}
	if w.terminal != nil {
		w.draw(now)
	} else if now.Sub(w.began) >= watchLives/2 {
		w.print("  " + w.now(now))
	}
}

// now says who is running and for how long.
func (w *watch) now(now time.Time) string {
	return fmt.Sprintf("%d of %d  %s  %s", w.step.Done+1, w.step.Total, report.Printable(w.step.ID), now.Sub(w.began).Truncate(100*time.Millisecond))
}

// draw draws the last line, no longer than the terminal is wide.
func (w *watch) draw(now time.Time) {
	if w.terminal == nil || w.step.ID == "" {
		return
	}
	line := w.now(now)
	if width, _, err := term.GetSize(int(w.terminal.Fd())); err == nil && width > 0 {
		line = line[:min(len(line), width-1)]
	}
	w.erase()
	fmt.Fprint(w.terminal, line)
}

// end takes the last line away. It may be called twice.
func (w *watch) end() {
	w.mu.Lock()
	over := w.step.Total < 0
	if !over && w.step.ID != "" {
		w.erase()
	}
	w.step = conformance.Step{Total: -1}
	w.mu.Unlock()
	if !over {
		close(w.quit)
		w.ended.Wait()
	}
}
