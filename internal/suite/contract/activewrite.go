package contract

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// activeWrites are the probes of transactions over an active mount. What a
// provider keeps of one over a crash, where its bodies lie meanwhile and whose
// pause it ends cannot be seen from here.
func activeWrites() []probe.Probe {
	const operations = `contract "The operations"`
	requires := []report.Token{report.ActiveWrite, report.Mounts, report.Filesystem}
	return []probe.Probe{
		{
			ID: "active-write.publishes", Suite: report.Contract, Clause: "CF-AW-01", Source: operations, Run: publishes, Requires: requires,
			Title: "a batch of declared, regular files that was dispatched is in the mount, new directories and permission bits included, and the workload goes on",
		},
		{
			ID: "active-write.all-or-nothing", Suite: report.Contract, Clause: "CF-AW-02", Source: operations, Run: allOrNothing, Requires: requires,
			Title: "where one file of a batch cannot be published, none is",
		},
		{
			ID: "active-write.at-once", Suite: report.Contract, Clause: "CF-AW-11", Source: operations, Run: atOnce, Requires: requires,
			Title: "a workload that looks all the time sees a batch whole or not at all",
		},
		{
			ID: "active-write.marker-first", Suite: report.Contract, Clause: "CF-AW-03", Source: operations, Run: markerFirst, Requires: requires,
			Title: "the dispatch marker is called once, before anything of the dispatch can be seen",
		},
		{
			ID: "active-write.leaves-others", Suite: report.Contract, Clause: "CF-AW-04", Source: operations, Run: leavesOthers, Requires: requires,
			Title: "an open transaction is not disturbed by what becomes of another",
		},
		{
			ID: "active-write.committed-stays", Suite: report.Contract, Clause: "CF-AW-05", Source: operations, Run: committedStays, Requires: requires,
			Title: "what was committed is not rolled back, and its abortion is refused",
		},
		{
			ID: "active-write.abort-drops", Suite: report.Contract, Clause: "CF-AW-06", Source: operations, Run: abortDrops, Requires: requires,
			Title: "an aborted transaction has published nothing and cannot be dispatched any more",
		},
		{
			ID: "active-write.abort-idempotent", Suite: report.Contract, Clause: "CF-AW-07", Source: `contract "Allocation handoff"`, Run: abortAgain, Requires: requires,
			Title: "aborting again is a success",
		},
		{
			ID: "active-write.deepest-mount", Suite: report.Contract, Clause: "CF-AW-08", Source: operations, Run: deepestMount, Requires: requires,
			Title: "a mount that can be written gives no right in a sealed one or another below it",
		},
		{
			ID: "active-write.inside-mount", Suite: report.Contract, Clause: "CF-AW-09", Source: operations, Run: insideMount, Requires: requires,
			Title: "a target outside every read-write mount is refused",
		},
		{
			ID: "active-write.ancestor-conflict", Suite: report.Contract, Clause: "CF-AW-10", Source: operations, Run: ancestorConflict, Requires: requires,
			Title: "targets of which one lies below another are refused",
		},
	}
}

// site is a machine with an open mount, in it a sealed one and another open
// one, each with a file of its own.
type site struct {
	*probe.Machine
	t                  *probe.T
	open, sealed, near string // mount paths
	old                string // content of the file "old" in each
}

func newSite(t *probe.T) site {
	open := "/workspace/" + t.Nonce()
	w := site{t: t, open: open, sealed: open + "/" + t.Nonce(), near: open + "/" + t.Nonce(), old: t.Nonce()}
	shape := probe.Shape{}
	// A journal on a disk may refuse zero retention; a durable profile has no
	// such reason.
	if t.Has(report.Durable) {
		shape = probe.Durable(shape)
	}
	for _, m := range []struct {
		path   string
		access sandbox.Access
	}{{w.open, sandbox.AccessReadWrite}, {w.sealed, sandbox.AccessReadOnly}, {w.near, sandbox.AccessReadWrite}} {
		shape.Mounts = append(shape.Mounts, sandbox.Mount{MountPath: m.path, Access: m.access, Kind: sandbox.MountMemory})
		shape.Files = append(shape.Files, sandbox.FileWrite{Path: m.path + "/old", Content: []byte(w.old)})
	}
	w.Machine = t.Machine(shape)
	return w
}

// begin opens a transaction. The probe stops if the target refuses.
func (w site) begin(targets ...string) sandbox.ActiveWrite {
	tx, err := w.t.Optional().ActiveWrite.BeginActiveWrite(w.t.Context(), w.ID, targets)
	w.t.Need("begin", err)
	return tx
}

// stage gives the targets a body each, the same for all, and returns it.
func (w site) stage(tx sandbox.ActiveWrite, targets ...string) string {
	body := w.t.Nonce()
	for _, target := range targets {
		w.t.Need("stage", tx.Stage(w.t.Context(), sandbox.FileWrite{Path: target, Content: []byte(body)}))
	}
	return body
}

// write publishes one body at targets and returns the first error of any step:
// where a target is not allowed, it may be refused at each.
func (w site) write(targets ...string) error {
	tx, err := w.t.Optional().ActiveWrite.BeginActiveWrite(w.t.Context(), w.ID, targets)
	if err != nil {
		return err
	}
	for _, target := range targets {
		if err := tx.Stage(w.t.Context(), sandbox.FileWrite{Path: target, Content: []byte(w.t.Nonce())}); err != nil {
			_ = tx.Abort(w.t.Context())
			return err
		}
	}
	if err := tx.Dispatch(w.t.Context(), func() {}); err != nil {
		_ = tx.Abort(w.t.Context())
		return err
	}
	return nil
}

// holds is the content of a file of one of the three mounts, by the trusted
// port; "" if there is none.
func (w site) holds(path string) string {
	root := w.open
	for _, nested := range []string{w.sealed, w.near} {
		if strings.HasPrefix(path, nested+"/") {
			root = nested
		}
	}
	b, _ := w.Read(path, root, 1<<12)
	return string(b)
}

// has records whether a file has a content.
func (w site) has(check, path, want string) {
	got := w.holds(path)
	w.t.Check(check, got == want, want+" in "+path, strconv.Quote(got))
}

// large publishes a body that is larger than most frames and reports whether
// the workload has it.
func (w site) large() bool {
	path, body := w.open+"/"+w.t.Nonce(), ample(w.t, 1<<20+1)
	tx := w.begin(path)
	w.t.Need("stage", tx.Stage(w.t.Context(), sandbox.FileWrite{Path: path, Content: body}))
	w.t.Need("dispatch", tx.Dispatch(w.t.Context(), func() {}))
	return holds(w.Machine, path, body)
}

func publishes(t *probe.T) {
	w := newSite(t)
	old, made := w.open+"/old", w.open+"/"+t.Nonce()+"/deep/made"
	tx := w.begin(old, made)
	body := w.stage(tx, old)
	t.Need("stage", tx.Stage(t.Context(), sandbox.FileWrite{Path: made, Content: []byte("#!/bin/sh\necho " + body + "\n"), Executable: true}))
	t.Check("nothing-early", w.holds(old) == w.old && w.holds(made) == "", "the old files until the dispatch", w.holds(old)+w.holds(made))
	state, err := tx.Inspect(t.Context())
	t.Check("open", err == nil && state == sandbox.JournalOpen, string(sandbox.JournalOpen), string(state))
	t.Need("dispatch", tx.Dispatch(t.Context(), func() {}))
	w.has("replaced", old, body)
	s, err := t.Provider().Execute(t.Context(), w.ID, probe.Command(made))
	if t.Check("runs", err == nil, "a workload that goes on", err) {
		t.Check("executable", string(s.Stdout) == body+"\n", "a file that can be executed", s.Stderr)
	}
	state, err = tx.Inspect(t.Context())
	t.Check("committed", err == nil && state == sandbox.JournalCommitted, string(sandbox.JournalCommitted), string(state))
	t.Check("large", w.large(), "a body of more than a megabyte, whole", "another")
	other := w.begin(old)
	err = other.Stage(t.Context(), sandbox.FileWrite{Path: w.open + "/" + t.Nonce(), Content: []byte(body)})
	t.Check("declared", err != nil, "a refusal of what is no target of the transaction", "success")
	err = other.Stage(t.Context(), sandbox.FileWrite{Path: old, Symlink: "elsewhere"})
	t.Check("regular", err != nil, "a refusal of a link: a batch is of regular files", "success")
}

// allOrNothing lets the workload put a directory where the second file is to
// be. Whether the target makes way or refuses is its own; half of the batch is
// not.
func allOrNothing(t *probe.T) {
	w := newSite(t)
	first, second := w.open+"/old", w.open+"/"+t.Nonce()
	tx := w.begin(first, second)
	body := w.stage(tx, first, second)
	if s := w.Sh("mkdir -p " + second + "/inner"); probe.Code(s) != 0 {
		t.Unjudged("obstacle", "the workload could not make a directory: "+string(s.Stderr))
	}
	err := tx.Dispatch(t.Context(), func() {})
	if w.holds(second) == body {
		w.has("all", first, body)
		return
	}
	t.Check("refused", err != nil, "an error: one file could not be published", "success")
	w.has("nothing", first, w.old)
}

// atOnce lets commands read the first file, the second and the first again
// while a batch is published: who has seen a new file sees no old one after it.
func atOnce(t *probe.T) {
	w := newSite(t)
	first, second := w.open+"/old", w.open+"/"+t.Nonce()
	if s := w.Sh("printf %s " + w.old + " >" + second); probe.Code(s) != 0 {
		t.Unjudged("file", "the workload could not write into its mount: "+string(s.Stderr))
	}
	tx := w.begin(first, second)
	body := w.stage(tx, first, second)
	look := probe.Command("cat " + first + " " + second + " " + first)
	whole := []string{w.old + w.old + w.old, w.old + w.old + body, w.old + body + body, body + body + body}
	saw := func(s sandbox.Settlement) {
		t.Check("whole", slices.Contains(whole, string(s.Stdout)), "old files, and then new ones only", s.Stdout)
	}
	for range 2 {
		saw(w.Run(look))
	}
	published := make(chan error, 1)
	go func() { published <- tx.Dispatch(t.Context(), func() {}) }()
	for looking := true; looking; {
		select {
		case err := <-published:
			t.Need("dispatch", err)
			looking = false
		default:
			// A target that has its instance for itself meanwhile may refuse.
			if s, err := t.Provider().Execute(t.Context(), w.ID, look); err == nil {
				saw(s)
			}
		}
	}
	w.has("first", first, body)
	w.has("second", second, body)
}

// markerFirst looks from outside while the marker runs. A target may answer
// only when it has returned, so nobody waits for it long.
func markerFirst(t *probe.T) {
	const patience = 2 * time.Second
	w := newSite(t)
	old := w.open + "/old"
	tx := w.begin(old)
	w.stage(tx, old)
	marked, goOn := make(chan struct{}, 8), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- tx.Dispatch(t.Context(), func() {
			marked <- struct{}{}
			<-goOn
		})
	}()
	var err error
	calls, ended := 0, false
	select {
	case <-marked:
		calls++
	case err = <-done:
		ended = true
	}
	state, held := make(chan sandbox.JournalState, 1), make(chan string, 1)
	if !ended {
		go func() { s, _ := tx.Inspect(t.Context()); state <- s }()
		go func() { held <- w.holds(old) }()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late := timer.C
		for waiting := 2; waiting > 0; waiting-- {
			select {
			case s := <-state:
				t.Check("journal", s == sandbox.JournalOpen, string(sandbox.JournalOpen)+" in the marker", string(s))
			case got := <-held:
				t.Check("files", got == w.old, "the old file in the marker", strconv.Quote(got))
			case <-late:
				t.Observe("the target does not answer while the marker runs")
				waiting = 0
			}
		}
	}
	close(goOn)
	if !ended {
		err = <-done
	}
	t.Need("dispatch", err)
	calls += len(marked)
	t.Check("once", calls == 1, "one call of the marker", calls)
}

func leavesOthers(t *probe.T) {
	w := newSite(t)
	mine, theirs, third := w.open+"/"+t.Nonce(), w.open+"/"+t.Nonce(), w.open+"/"+t.Nonce()
	open := w.begin(mine)
	body := w.stage(open, mine)
	for _, end := range []struct {
		check, target string
		with          func(sandbox.ActiveWrite) error
	}{
		{"dispatch", theirs, func(tx sandbox.ActiveWrite) error { return tx.Dispatch(t.Context(), func() {}) }},
		{"abort", third, func(tx sandbox.ActiveWrite) error { return tx.Abort(t.Context()) }},
	} {
		other, err := t.Optional().ActiveWrite.BeginActiveWrite(t.Context(), w.ID, []string{end.target})
		if errors.Is(err, &sandbox.Error{Kind: sandbox.LifecycleConflict}) {
			t.NotHere("the target has one transaction at a time: " + err.Error())
		}
		t.Need("begin", err)
		w.stage(other, end.target)
		t.Need("end", end.with(other))
		state, err := open.Inspect(t.Context())
		t.Check(end.check, err == nil && state == sandbox.JournalOpen, string(sandbox.JournalOpen)+" after the "+end.check+" of another", string(state))
	}
	err := open.Dispatch(t.Context(), func() {})
	if t.Check("still", err == nil, "a dispatch that succeeds", err) {
		w.has("files", mine, body)
	}
}

func committedStays(t *probe.T) {
	w := newSite(t)
	old := w.open + "/old"
	tx := w.begin(old)
	body := w.stage(tx, old)
	t.Need("dispatch", tx.Dispatch(t.Context(), func() {}))
	err := tx.Abort(t.Context())
	t.Check("refused", err != nil, "a refusal: it has been dispatched", "success")
	w.has("files", old, body)
}

func abortDrops(t *probe.T) {
	w := newSite(t)
	old := w.open + "/old"
	tx := w.begin(old)
	w.stage(tx, old)
	t.Need("abort", tx.Abort(t.Context()))
	state, err := tx.Inspect(t.Context())
	t.Check("journal", err == nil && state == sandbox.JournalRolledBack, string(sandbox.JournalRolledBack), string(state))
	marked := false
	t.Check("refused", tx.Dispatch(t.Context(), func() { marked = true }) != nil && !marked, "a refusal before the marker", "a dispatch")
	w.has("files", old, w.old)
}

func abortAgain(t *probe.T) {
	w := newSite(t)
	tx := w.begin(w.open + "/old")
	t.Need("abort", tx.Abort(t.Context()))
	err := tx.Abort(t.Context())
	t.Check("again", err == nil, "success", err)
}

func deepestMount(t *probe.T) {
	w := newSite(t)
	err := w.write(w.open + "/" + t.Nonce())
	t.Control("the mount above can be written", err == nil, err)
	t.Check("two-mounts", w.write(w.open+"/"+t.Nonce(), w.near+"/"+t.Nonce()) != nil, "a refusal: another mount owns the second", "success")
	if s := w.Sh("echo >" + w.sealed + "/" + t.Nonce()); probe.Code(s) == 0 {
		t.NotHere("the workload itself may write in the sealed mount, which states.sealed-mounts reports")
	}
	t.Check("sealed", w.write(w.sealed+"/old") != nil, "a refusal: the deepest mount is read-only", "success")
}

func insideMount(t *probe.T) {
	w := newSite(t)
	err := w.write(w.near + "/" + t.Nonce())
	t.Control("the mount can be written", err == nil, err)
	for _, c := range []struct{ check, path string }{
		{"no-mount", "/opt/" + t.Nonce()}, {"output-tree", sandbox.OutputPath + "/" + t.Nonce()}, {"home", sandbox.HomePath + "/" + t.Nonce()},
	} {
		t.Check(c.check, w.write(c.path) != nil, "a refusal of "+c.path, "success")
	}
}

func ancestorConflict(t *probe.T) {
	w := newSite(t)
	a, b := w.open+"/"+t.Nonce(), w.open+"/"+t.Nonce()
	err := w.write(a+"/x", b)
	t.Control("two targets apart can be written", err == nil, err)
	t.Check("refused", w.write(b+"/x", b+"/x/y") != nil, "a refusal: a file cannot be a directory too", "success")
	t.Check("below-file", w.write(b+"/x") != nil, "a refusal: "+b+" is a file", "success")
}
