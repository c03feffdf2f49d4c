package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/runner"
)

// progress shows long work on a terminal; elsewhere it is silent. The zero
// value is silent.
type progress struct {
	to io.Writer // nil is silent

	mu   sync.Mutex
	what string
	bar  *progressbar.ProgressBar
}

func (a *app) progress(quiet bool) *progress {
	if file, ok := a.stderr.(*os.File); ok && !quiet && term.IsTerminal(int(file.Fd())) {
		return &progress{to: file}
	}
	return &progress{}
}

// image shows a step of the image store.
func (p *progress) image(step image.Progress) {
	p.show(step.Stage+" image", step.Done, step.Total, true)
}

// phase shows a step of a Run.
func (p *progress) phase(phase runner.Phase, done, total int64) {
	p.show(string(phase), done, total, false)
}

func (p *progress) show(what string, done, total int64, bytes bool) {
	if p.to == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if total <= 0 {
		total = -1 // a spinner
	}
	if p.bar == nil || p.what != what {
		p.clear()
		p.what = what
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.to), progressbar.OptionSetDescription(what),
			progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(100e6))
	}
	_ = p.bar.Set64(done) // what a terminal does not take is not shown
}

func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

// end takes the bar off the screen.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// note prints a line where the bar was, on a terminal only.
func (p *progress) note(line string) {
	if p.to == nil {
		return
	}
	p.end()
	fmt.Fprintf(p.to, "%s\n", line)
}

// before takes the bar off the screen when the first byte of w comes.
func (p *progress) before(w io.Writer) io.Writer {
	if p.to == nil {
		return w
	}
	return &afterBar{w: w, bar: p}
}

type afterBar struct {
	w    io.Writer
	bar  *progress
	once sync.Once
}

func (b *afterBar) Write(data []byte) (int, error) {
	b.once.Do(b.bar.end)
	return b.w.Write(data)
}
