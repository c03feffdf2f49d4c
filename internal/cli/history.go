package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/runner"
	"github.com/checkfu/checkfu/internal/runs"
)

// remembered is the entry of one Run in the history; the nil one keeps nothing.
type remembered struct{ run *runs.Run }

// remember begins the entry of a Run, and has the Spec write into it. That there is
// no room for it is told, and no reason not to run; a state directory that cannot be
// used at all is one.
func (a *app) remember(spec *runner.Spec, f runFlags) (*remembered, error) {
	if f.noHistory {
		return nil, nil
	}
	dir, err := a.usableState()
	if err != nil {
		return nil, err
	}
	e := runs.Entry{RunID: spec.RunID, Provider: f.provider, Command: spec.Command, OutDir: absolute(f.out)}
	if spec.Repo != nil {
		e.Repo = &runs.Repo{Dir: absolute(spec.Repo.Dir), Revision: spec.Repo.Revision}
	}
	run, err := runs.Begin(dir, e)
	if err != nil {
		a.complain(fmt.Errorf("the run is not in the history: %w", err))
		return nil, nil
	}
	spec.Base = run.Base()
	return &remembered{run}, nil
}

// patch has what is written to w written to the entry too.
func (m *remembered) patch(spec *runner.Spec) {
	switch {
	case m == nil || spec.Repo == nil:
	case spec.Patch == nil:
		spec.Patch = m.run.Patch()
	default:
		spec.Patch = io.MultiWriter(spec.Patch, m.run.Patch())
	}
}

// close lets go of the entry; one that was not completed is that of a lost Run.
func (m *remembered) close() {
	if m != nil {
		_ = m.run.Close()
	}
}

// complete writes how the Run ended, when its results are where they belong.
func (a *app) complete(m *remembered, f runFlags, record *runner.Record, patch *sink) {
	if m == nil {
		return
	}
	if a.code == ExitUsage && record.InstanceID == "" { // a mistyped flag is no Run
		if err := m.run.Discard(); err != nil {
			a.complain(err)
		}
		return
	}
	var kept runs.Entry
	data, err := record.Encode()
	if err == nil {
		err = m.run.End(data, collected(record), func(e *runs.Entry) {
			code := int64(a.code)
			e.ExitCode, e.Cause = &code, string(record.Cause)
			if e.Repo != nil && len(record.Mounts) > 0 {
				r := record.Mounts[0]
				e.Repo.Commit, e.Repo.Dirty, e.Repo.TreeDigest = r.Commit, r.Dirty, r.TreeDigest
			}
			switch {
			case f.patch == "-" && collected(record):
				e.PatchPath = "-"
			case patch != nil && patch.closed:
				e.PatchPath = absolute(patch.path)
			}
			kept = *e
		})
	}
	if err != nil {
		a.complain(fmt.Errorf("the run is not whole in the history: %w", err))
		return
	}
	if !f.quiet && kept.Repo != nil && collected(record) && len(record.Mounts[0].Changes) > 0 {
		fmt.Fprintf(a.stderr, "  %-9s checkfu runs apply %s (merges, also into a tree that has changed since)\n", "history", record.RunID)
	}
}

// absolute is a path that means the same from everywhere; "" stays.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

// runError is err in the words of who typed id.
func runError(id string, err error) error {
	if runs.NotFound.Is(err) && id == "latest" {
		return argument.Unexpected("RUN", "a run that has ended (there is none yet)", id)
	}
	if runs.NotFound.Is(err) || runs.CheckID(id) != nil && id != "latest" {
		return argument.Unexpected("RUN", "a run (see checkfu runs ls), or latest", id)
	}
	return err
}

// openRun opens a Run of the history.
func (a *app) openRun(id string) (*runs.Kept, error) {
	dir, err := a.usableState()
	if err != nil {
		return nil, err
	}
	k, err := runs.Open(dir, id)
	if err != nil {
		return nil, runError(id, err)
	}
	return k, nil
}

// lost says what became of a Run that has no end.
func lost(k *runs.Kept) error {
	if k.FinishedAt != "" {
		return nil
	}
	return errors.New("run " + k.RunID + " was lost: its process ended before it did, and it has no result")
}

// commandLine is a command as a person would type it.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		if words[i] = shellWord(w); shellWord("x"+w) == "x"+w && w != "" {
			words[i] = w // a flag needs no quotes, as a path would
		}
	}
	return argument.Printable(strings.Join(words, " "))
}
