package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/sandbox"
)

// summary is the short text at the end of a Run.
type summary struct {
	record   *runner.Record
	provider string
	code     int
	patch    string // where the patch is, "" for nowhere
	out      string
	told     string // the error that was printed already
	whole    bool   // every name, not the first few
}

// shown is how many names a summary lists of each kind.
const shown = 8

func (s summary) print(w io.Writer) {
	line := func(head, format string, args ...any) {
		fmt.Fprintf(w, "  %-9s %s\n", head, argument.Printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(w, "checkfu: %s on %s: %s, %s\n", s.record.RunID, s.provider, s.ending(), s.times())
	for _, m := range s.record.Mounts {
		line("staged", "%s: %s", m.MountPath, m.Summary)
		if m.Collected {
			s.changes(m, line)
		}
	}
	s.outputs(line)
	s.egress(line)
	s.models(line)
	if len(s.record.Enforcement) > 0 {
		line("enforced", "%s", enforcement(s.record.Enforcement))
	}
	for _, n := range s.record.Narrowings {
		line("narrowed", "%s: %s, claimed %s (%s)", n.Field, n.Result, argument.OneLine(n.Claimed), n.Reason)
	}
	for _, f := range s.record.Failures {
		if strings.Contains(s.told, f.Message) {
			continue
		}
		line("failed", "%s: %s", f.Phase, argument.OneLine(f.Message))
	}
}

func (s summary) ending() string {
	r := s.record
	switch r.Cause {
	case runner.CauseExited:
		if r.Exit.Signal != "" {
			return "ended by " + r.Exit.Signal
		}
		return fmt.Sprintf("exit %d", s.code)
	case "":
		return "failed"
	}
	return strings.ReplaceAll(string(r.Cause), "_", " ")
}

func (s summary) times() string {
	var total, command int64
	for _, p := range s.record.Phases {
		total += p.Millis
		if p.Phase == runner.PhaseCommand {
			command = p.Millis
		}
	}
	return fmt.Sprintf("%s (command %s)", seconds(total), seconds(command))
}

func seconds(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(10 * time.Millisecond).String()
}

func (s summary) changes(m runner.Mount, line func(string, string, ...any)) {
	if len(m.Changes) == 0 {
		line("changed", "nothing")
	} else {
		counts := ""
		if m.PatchSize > 0 {
			counts = fmt.Sprintf(" (+%d −%d lines)", m.Lines.Added, m.Lines.Deleted)
		}
		line("changed", "%s%s: %s", files(distinct(m.Changes)), counts, s.names(m.Changes))
	}
	if len(m.Uncarried) > 0 {
		line("not taken", "%d: %s", len(m.Uncarried), s.names(m.Uncarried))
	}
	switch {
	case m.Kind != sandbox.MountGit:
		if len(m.Changes) > 0 {
			line("", "changes of a --mount are not kept; use /mnt/session/outputs and --out")
		}
	case len(m.Changes) == 0:
	case s.patch == "-":
		line("patch", "on standard output")
	case s.patch != "":
		line("patch", "%s (apply it with: git apply %s)", s.patch, shellWord(s.patch))
	}
}

// egress sums up what was asked of the guard: what it refused is what a command
// that failed was missing.
func (s summary) egress(line func(string, string, ...any)) {
	e := s.record.Egress
	if e == nil {
		return
	}
	refused := e.Others
	for _, r := range e.Refused {
		refused += r.Count
	}
	line("reached", "%d requests let through, %d refused", e.Allowed, refused)
	for i, r := range e.Refused {
		if i == shown && !s.whole {
			line("refused", "and %d other destinations; the record names them (--json)", len(e.Refused)-shown)
			break
		}
		where := argument.OneLine(r.Host)
		if r.Port != 0 {
			where = fmt.Sprintf("%s:%d", where, r.Port)
		}
		line("refused", "%s (%s, %d×)", where, strings.ReplaceAll(argument.OneLine(r.Reason), "_", " "), r.Count)
	}
	if e.GuardEnded {
		line("refused", "everything since the guard ended")
	}
}

// models sums up what was used of the model route, by the gateway's count.
func (s summary) models(line func(string, string, ...any)) {
	m := s.record.Model
	if m == nil {
		return
	}
	more := ""
	if m.Estimated > 0 {
		more = fmt.Sprintf("; %d answers estimated", m.Estimated)
	}
	if m.Unsettled {
		more += "; a request was still under way"
	}
	if m.RelayEnded {
		more += "; none since the relay ended"
	}
	line("models", "%d requests, %d tokens in (%d cached), %d out%s", m.Requests, m.InputTokens, m.CachedTokens, m.OutputTokens, more)
}

// distinct counts paths: a file whose mode and content changed stands twice.
func distinct(list []runner.Named) int64 {
	seen := make(map[string]bool, len(list))
	for _, n := range list {
		seen[n.Path+"\x00"+n.PathHex] = true
	}
	return int64(len(seen))
}

func files(n int64) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// shellWord quotes a path so that it can be pasted.
func shellWord(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-./+", r)
	}) < 0
	if plain && s != "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (s summary) names(list []runner.Named) string {
	var parts []string
	for i, n := range list {
		if i == shown && !s.whole {
			parts = append(parts, fmt.Sprintf("and %d more", len(list)-shown))
			break
		}
		parts = append(parts, strings.TrimPrefix(n.Why+" "+n.Path, " "))
	}
	return strings.Join(parts, ", ")
}

func (s summary) outputs(line func(string, string, ...any)) {
	var kept, size int64
	var refused []runner.Named
	for _, o := range s.record.Outputs {
		if o.Refused == "" {
			kept++
			size += o.Size
		} else {
			why := o.Refused
			if s.out == "" {
				why = ""
			}
			refused = append(refused, runner.Named{Path: o.Path, Why: why})
		}
	}
	if kept > 0 {
		line("outputs", "%s, %s, in %s", files(kept), argument.Bytes(size), s.out)
	}
	switch {
	case len(refused) == 0:
	case s.out == "":
		line("outputs", "%d left behind, use --out to keep them: %s", len(refused), s.names(refused))
	default:
		line("outputs", "%d not taken: %s", len(refused), s.names(refused))
	}
}

// enforcement lists the nine axes by who enforces them.
func enforcement(axes []runner.Enforced) string {
	var order []sandbox.Authority
	by := map[sandbox.Authority][]string{}
	for _, e := range axes {
		if by[e.Authority] == nil {
			order = append(order, e.Authority)
		}
		by[e.Authority] = append(by[e.Authority], string(e.Axis))
	}
	var parts []string
	for _, authority := range order {
		parts = append(parts, string(authority)+": "+strings.Join(by[authority], " "))
	}
	return strings.Join(parts, "; ")
}
