package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// line is one row of the table. Bound is the largest ratio ours/raw, or with no
// raw side the largest value; 0 is none.
type line struct {
	what    string
	unit    string
	ours    samples
	rawName string
	raw     samples
	bound   float64
	strict  bool   // a bound of zero is one too
	absent  string // why there is no raw side to hold it against
	note    string
}

// holds reports whether the bound holds, by medians.
func (l line) holds() string {
	if l.absent != "" {
		return l.absent
	}
	if l.bound == 0 && !l.strict {
		return "informative"
	}
	value := l.ours.median()
	if l.raw != nil {
		value = l.ratio()
	}
	if value <= l.bound {
		return "holds"
	}
	return "**fails**"
}

func (l line) ratio() float64 {
	if l.raw.median() == 0 {
		return 0
	}
	return l.ours.median() / l.raw.median()
}

// report collects what was measured.
type report struct {
	began    time.Time
	load     string
	lines    []line
	commands []string // "name: command line"
	notes    []string
	failures []string
	census   []string
}

func (r *report) add(lines ...line) {
	r.lines = append(r.lines, lines...)
	for _, l := range lines {
		fmt.Fprintln(os.Stderr, "  "+l.markdown())
	}
}

// command records the exact command of a raw side, once.
func (r *report) command(name string, argv []string) {
	text := fmt.Sprintf("%s: `%s`", name, shellLine(argv))
	for _, have := range r.commands {
		if strings.HasPrefix(have, name+": ") {
			return
		}
	}
	r.commands = append(r.commands, text)
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *report) failure(name string, err error) {
	r.failures = append(r.failures, fmt.Sprintf("%s: %v", name, err))
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark results\n\n%s; %s; load before %s, after %s; %.0f s.\n", r.began.UTC().Format("2006-01-02 15:04 MST"),
		machineLine(), r.load, loadAverage(), time.Since(r.began).Seconds())
	fmt.Fprintf(&b, "Command: `%s`. Medians (minimum); the sides of a pair took turns.\n\n", shellLine(append([]string{"go", "run", "./bench"}, os.Args[1:]...)))
	b.WriteString("| what | ours | raw | raw is | ratio | bound | |\n|---|---|---|---|---|---|---|\n")
	for _, l := range r.lines {
		b.WriteString(l.markdown() + "\n")
	}
	section(&b, "Raw commands", r.commands)
	section(&b, "Notes", r.notes)
	section(&b, "Failures", r.failures)
	left := r.census
	if len(left) == 0 {
		left = []string{"nothing left: no process, mount, cgroup, network namespace or directory"}
	}
	section(&b, "Census", left)
	return b.String()
}

func section(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n", title)
	for _, i := range items {
		fmt.Fprintf(b, "- %s\n", strings.ReplaceAll(i, "\n", " "))
	}
}

func (l line) markdown() string {
	raw, ratio, bound := "", "", ""
	if l.raw != nil {
		raw, ratio = l.value(l.raw), fmt.Sprintf("%.2f", l.ratio())
	}
	if l.bound != 0 || l.strict {
		bound = fmt.Sprintf("%.4g %s", l.bound, l.unit)
		if l.raw != nil || l.absent != "" {
			bound = fmt.Sprintf("%.4g×", l.bound)
		}
	}
	what := l.what
	if l.note != "" {
		what += " (" + l.note + ")"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |", what, l.value(l.ours), raw, l.rawName, ratio, bound, l.holds())
}

func (l line) value(s samples) string {
	if len(s) == 1 {
		return fmt.Sprintf("%.3g %s", s[0], l.unit)
	}
	return fmt.Sprintf("%.3g (%.3g) %s", s.median(), s.min(), l.unit)
}

func machineLine() string {
	var u unix.Utsname
	unix.Uname(&u)
	model := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	memory, _ := meminfo("MemTotal")
	return fmt.Sprintf("%d × %s, %.0f MB, Linux %s %s, %s", runtime.NumCPU(), model, memory/1e6,
		unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.Version())
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:1], "")
}

// shellLine is argv as one would type it.
func shellLine(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$&|;<>()*?[]#~`!{}") {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
