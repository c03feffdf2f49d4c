package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

// rw is an open mount with a sealed and another open one in it.
const rw = "/workspace/rw"

func writeMounts() []sandbox.Mount {
	return []sandbox.Mount{
		{MountPath: rw, Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory},
		{MountPath: rw + "/sealed", Access: sandbox.AccessReadOnly, Kind: sandbox.MountMemory},
		{MountPath: rw + "/own", Access: sandbox.AccessReadWrite, Kind: sandbox.MountMemory},
	}
}

func begin(t testing.TB, p *Provider, id sandbox.InstanceID, targets ...string) sandbox.ActiveWrite {
	t.Helper()
	w, err := p.BeginActiveWrite(t.Context(), id, targets)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func stageIn(t testing.TB, w sandbox.ActiveWrite, path, content string) {
	t.Helper()
	if err := w.Stage(t.Context(), sandbox.FileWrite{Path: path, Content: []byte(content)}); err != nil {
		t.Fatal(err)
	}
}

func dispatched(t testing.TB, w sandbox.ActiveWrite) {
	t.Helper()
	if err := w.Dispatch(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
}

func journalIs(t testing.TB, w sandbox.ActiveWrite, want sandbox.JournalState) {
	t.Helper()
	if got, err := w.Inspect(t.Context()); err != nil || got != want {
		t.Errorf("journal %s, want %s, %v", got, want, err)
	}
}

// says runs a script that must print exactly want.
func says(t testing.TB, p *Provider, id sandbox.InstanceID, script, want string) {
	t.Helper()
	if s := sh(t, p, id, script); string(s.Stdout) != want {
		t.Errorf("%s: %q, want %q (%s)", script, s.Stdout, want, s.Stderr)
	}
}

// noWrites holds that no transaction has left anything in the home.
func noWrites(t testing.TB, p *Provider, id sandbox.InstanceID) {
	t.Helper()
	if left, err := filepath.Glob(p.place(id).home() + "/writes/*"); err != nil || len(left) > 0 {
		t.Errorf("left of transactions: %v %v", left, err)
	}
}

func refusedAs(t testing.TB, what string, err error, want *sandbox.Error) {
	t.Helper()
	want.Operation = sandbox.OpBeginActiveWrite
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// TestActiveWrite: a batch is in the mount at once, for what is looked up by name;
// whoever has an old file open keeps it.
func TestActiveWrite(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p, writeMounts()...)
		says(t, p, id, "cd "+rw+"; mkdir d; echo old >a; echo old >d/b; chmod 600 a; ln a second; ls", "a\nd\nown\nsealed\nsecond\n")
		holder, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{
			Executable: "/bin/sh", Arguments: []string{"-c", "exec 3<a; cd d; echo ready; read x; cat <&3; cat b ../a; echo more >>../a; cat ../a"}, WorkingDirectory: rw, Environment: map[string]string{},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(holder.Output(), make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		other := begin(t, p, id, rw+"/a", rw+"/other")
		stageIn(t, other, rw+"/a", "other")
		w := begin(t, p, id, rw+"/a", rw+"/d/b", rw+"/new/deep/c")
		stageIn(t, w, rw+"/a", "first")
		stageIn(t, w, rw+"/a", "a\n")
		stageIn(t, w, rw+"/d/b", "b\n")
		journalIs(t, w, sandbox.JournalOpen)
		refusedAs(t, "one body is missing", w.Dispatch(t.Context(), func() { t.Error("marked") }), &sandbox.Error{Kind: sandbox.LifecycleConflict})
		if err := w.Stage(t.Context(), sandbox.FileWrite{Path: rw + "/new/deep/c", Content: []byte("#!/bin/sh\necho c\n"), Executable: true}); err != nil {
			t.Fatal(err)
		}
		says(t, p, id, "cd "+rw+"; ls; cat a d/b", "a\nd\nown\nsealed\nsecond\nold\nold\n")

		marks := 0
		if err := w.Dispatch(t.Context(), func() {
			marks++
			journalIs(t, w, sandbox.JournalOpen)
			refusedAs(t, "abort in the marker", w.Abort(t.Context()), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "dispatched"})
			if got, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: rw + "/a", AllowedRoot: rw, MaximumBytes: 9}); err != nil || string(got) != "old\n" {
				t.Errorf("in the marker: %q, %v", got, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		journalIs(t, w, sandbox.JournalCommitted)
		for what, err := range map[string]error{
			"again": w.Dispatch(t.Context(), func() { marks++ }), "abort": w.Abort(t.Context()), "stage": w.Stage(t.Context(), sandbox.FileWrite{Path: rw + "/a"}),
		} {
			refusedAs(t, what, err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "committed"})
		}
		if marks != 1 {
			t.Errorf("%d marks", marks)
		}
		// It had a open, and stands in d: its file is the old one, and every name new.
		if _, err := io.WriteString(holder.Input(), "go\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(holder.Output()); err != nil || string(got) != "old\nb\na\na\nmore\n" {
			t.Errorf("the holder read %q, %v", got, err)
		}
		if err := holder.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		says(t, p, id, "cd "+rw+"; cat d/b second; new/deep/c; stat -c %a,%U a new new/deep/c; echo mine >new/deep/d && rm -r new; ls",
			"b\nold\nc\n644,checkfu\n755,checkfu\n755,checkfu\na\nd\nown\nsealed\nsecond\n")

		journalIs(t, other, sandbox.JournalOpen)
		if err := errors.Join(other.Abort(t.Context()), other.Abort(t.Context())); err != nil {
			t.Error(err)
		}
		journalIs(t, other, sandbox.JournalRolledBack)
		refusedAs(t, "dispatch of what was aborted", other.Dispatch(t.Context(), func() { t.Error("marked") }), &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "rolled_back"})
		own := begin(t, p, id, rw+"/own/x")
		stageIn(t, own, rw+"/own/x", "own\n")
		dispatched(t, own)
		says(t, p, id, "cat "+rw+"/own/x", "own\n")
		noWrites(t, p, id)

		// What is open when its instance goes has changed nothing, and says so.
		open := begin(t, p, id, rw+"/a")
		stageIn(t, open, rw+"/a", "never")
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		journalIs(t, open, sandbox.JournalRolledBack)
		journalIs(t, w, sandbox.JournalCommitted)
		for what, err := range map[string]error{"dispatch": open.Dispatch(t.Context(), func() { t.Error("marked") }), "stage": open.Stage(t.Context(), sandbox.FileWrite{Path: rw + "/a"})} {
			refusedAs(t, what, err, &sandbox.Error{Kind: sandbox.InstanceNotFound})
		}
	})
}

// TestActiveWrite_MappedByItsWorkload: who has a file mapped keeps the old one, and
// can do nothing to the new one through it.
func TestActiveWrite_MappedByItsWorkload(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := stageHostile(t, p)
		mustExit(t, sh(t, p, id, "echo old >/workspace/repo/a"), 0)
		holder, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{
			Executable: "/workspace/repo/hostile", Arguments: []string{"mapped", "/workspace/repo/a"}, WorkingDirectory: "/", Environment: map[string]string{},
		})
		if err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 2)
		if _, err := io.ReadFull(holder.Output(), said); err != nil || string(said) != "o\n" {
			t.Fatalf("%q, %v", said, err)
		}
		w := begin(t, p, id, "/workspace/repo/a")
		stageIn(t, w, "/workspace/repo/a", "new\n")
		dispatched(t, w)
		if _, err := io.WriteString(holder.Input(), "go"); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(holder.Output()); err != nil || string(got) != "ow new\n" {
			t.Errorf("it has %q, %v", got, err)
		}
		if got, err := p.ReadFile(t.Context(), id, sandbox.FileRead{Path: "/workspace/repo/a", AllowedRoot: "/workspace/repo", MaximumBytes: 9}); err != nil || string(got) != "new\n" {
			t.Errorf("from the host: %q, %v", got, err)
		}
		noWrites(t, p, id)
	})
}

// TestActiveWrite_Refusals: targets, and bodies.
func TestActiveWrite_Refusals(t *testing.T) {
	because := func(reason string) *sandbox.Error {
		return &sandbox.Error{Kind: sandbox.OperationFailed, Reason: reason}
	}
	p := newProvider(t, "runc")
	id := provision(t, p, request(p, writeMounts()...))
	_, err := p.BeginActiveWrite(t.Context(), id, []string{rw + "/x"})
	refusedAs(t, "in provisioning", err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: "provisioning"})
	if _, err := p.Activate(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	mustExit(t, sh(t, p, id, "cd "+rw+"; mkdir d; echo >f; ln -s d l; ln -s nowhere n; mkfifo p"), 0)
	for name, c := range map[string]struct {
		targets []string
		want    *sandbox.Error
	}{
		"none":                   {nil, because(sandbox.ReasonInvalidRequest)},
		"too many":               {make([]string, sandbox.MaxReadFiles+1), because(sandbox.ReasonInvalidRequest)},
		"form":                   {[]string{rw + "/../x"}, because(sandbox.ReasonInvalidRequest)},
		"no mount":               {[]string{"/tmp/x"}, because(sandbox.ReasonOutsideRoot)},
		"the output tree":        {[]string{sandbox.OutputPath + "/x"}, because(sandbox.ReasonOutsideRoot)},
		"the control root":       {[]string{sandbox.ControlRoot + "/x"}, because(sandbox.ReasonOutsideRoot)},
		"the home directory":     {[]string{sandbox.HomePath + "/x"}, because(sandbox.ReasonOutsideRoot)},
		"the mount itself":       {[]string{rw}, because(sandbox.ReasonOutsideRoot)},
		"the mount point of one": {[]string{rw + "/own"}, because(sandbox.ReasonOutsideRoot)},
		"in a sealed mount":      {[]string{rw + "/sealed/x"}, because(sandbox.ReasonOutsideRoot)},
		"two mounts":             {[]string{rw + "/x", rw + "/own/x"}, because(sandbox.ReasonOutsideRoot)},
		"twice":                  {[]string{rw + "/x", rw + "/x"}, because(sandbox.ReasonAncestorConflict)},
		"above another":          {[]string{rw + "/x", rw + "/x/y/z"}, because(sandbox.ReasonAncestorConflict)},
		"below another":          {[]string{rw + "/x/y/z", rw + "/x"}, because(sandbox.ReasonAncestorConflict)},
		"a directory":            {[]string{rw + "/d"}, because(sandbox.ReasonNotRegular)},
		"a fifo":                 {[]string{rw + "/p"}, because(sandbox.ReasonNotRegular)},
		"below a file":           {[]string{rw + "/f/x"}, because(sandbox.ReasonAncestorConflict)},
		"far below a file":       {[]string{rw + "/f/x/y"}, because(sandbox.ReasonAncestorConflict)},
		"a link":                 {[]string{rw + "/l"}, because(sandbox.ReasonOutsideRoot)},
		"a link to nowhere":      {[]string{rw + "/n"}, because(sandbox.ReasonOutsideRoot)},
		"below a link":           {[]string{rw + "/l/x"}, because(sandbox.ReasonOutsideRoot)},
		"new files below a link": {[]string{rw + "/l/new/x"}, because(sandbox.ReasonOutsideRoot)},
	} {
		_, err := p.BeginActiveWrite(t.Context(), id, c.targets)
		refusedAs(t, name, err, c.want)
	}
	w := begin(t, p, id, rw+"/a", rw+"/b")
	for name, c := range map[string]struct {
		f    sandbox.FileWrite
		want *sandbox.Error
	}{
		"not a target": {sandbox.FileWrite{Path: rw + "/c"}, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: rw + "/c"}},
		"a link":       {sandbox.FileWrite{Path: rw + "/a", Symlink: "x"}, because(sandbox.ReasonInvalidRequest)},
		"too large":    {sandbox.FileWrite{Path: rw + "/a", Content: make([]byte, sandbox.MaxFileBytes+1)}, &sandbox.Error{Kind: sandbox.FileTooLarge}},
	} {
		refusedAs(t, name, w.Stage(t.Context(), c.f), c.want)
	}
	var open []sandbox.ActiveWrite
	for range maxOpenWrites - 1 {
		open = append(open, begin(t, p, id, rw+"/a"))
	}
	_, err = p.BeginActiveWrite(t.Context(), id, []string{rw + "/a"})
	refusedAs(t, "one more", err, &sandbox.Error{Kind: sandbox.LifecycleConflict, Actual: fmt.Sprint(maxOpenWrites)})
	for _, w := range append(open, w) {
		if err := w.Abort(t.Context()); err != nil {
			t.Error(err)
		}
	}
	noWrites(t, p, id)
	if err := inMemory("/proc"); !errors.Is(err, sandbox.Unavailable(sandbox.OpBeginActiveWrite, sandbox.RequireActiveMountWrite, "", "")) {
		t.Errorf("a home that is no memory: %v", err)
	}
}

// TestActiveWrite_AllOrNothing: what the workload does between the beginning and
// the publication cannot make a half of it, or lead it elsewhere.
func TestActiveWrite_AllOrNothing(t *testing.T) {
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p, writeMounts()...)
		for name, c := range map[string]struct {
			sabotage string
			want     *sandbox.Error // nil where it does not hinder
		}{
			"a parent becomes a link":        {"mv d e; ln -s e d", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a parent becomes a link out":    {"mv d e; ln -s /mnt/session/outputs d", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a parent becomes another mount": {"mv d e; ln -s sealed d", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a parent becomes a file":        {"rm -r d; echo >d", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a target becomes a directory":   {"mkdir d/b", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a target becomes a link":        {"ln -s /tmp/x d/b", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a new parent is a link":         {"ln -s /tmp n", &sandbox.Error{Reason: sandbox.ReasonChanged}},
			"a parent is away":               {"mv d e", nil},
			"a target is away":               {"rm a", nil},
			"a target is there":              {"mkdir n; echo >n/c", nil},
			"the files are shut":             {"chmod 0 a d; chmod 0 .", nil},
		} {
			mustExit(t, sh(t, p, id, "chmod 755 "+rw+"; cd "+rw+"; [ ! -d d ] || chmod 755 d; rm -rf a d e n; mkdir d; echo old >a"), 0)
			w := begin(t, p, id, rw+"/a", rw+"/d/b", rw+"/n/c")
			for _, path := range []string{rw + "/a", rw + "/d/b", rw + "/n/c"} {
				stageIn(t, w, path, "new\n")
			}
			mustExit(t, sh(t, p, id, "cd "+rw+"; "+c.sabotage), 0)
			tree := "cd " + rw + "; chmod 755 . d; find . /mnt/session/outputs /tmp -type f -exec grep -H . {} + | sort; find . | sort"
			before := sh(t, p, id, "true")
			if c.want != nil {
				before = sh(t, p, id, tree)
			}
			err := w.Dispatch(t.Context(), func() {})
			if c.want == nil {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				journalIs(t, w, sandbox.JournalCommitted)
				says(t, p, id, "chmod 755 "+rw+"; cd "+rw+"; chmod 755 d; cat a d/b n/c", "new\nnew\nnew\n")
				continue
			}
			refusedAs(t, name, err, c.want)
			journalIs(t, w, sandbox.JournalRolledBack)
			says(t, p, id, tree, string(before.Stdout))
		}
		noWrites(t, p, id)

		// The home is full: what cannot be staged is said, and what could be staged
		// can be published, if it needs no new directory.
		mustExit(t, sh(t, p, id, "cd "+rw+"; rm -rf a d e n; echo old >a"), 0)
		a, n := begin(t, p, id, rw+"/a"), begin(t, p, id, rw+"/a", rw+"/n/c")
		stageIn(t, a, rw+"/a", "full\n")
		stageIn(t, n, rw+"/a", "never\n")
		stageIn(t, n, rw+"/n/c", "never\n")
		sh(t, p, id, "cd "+rw+"; dd if=/dev/zero of=fill bs=1M count=99")
		files := 0
		fill := func() { // the workload's hand is too slow for it
			for ; os.Mkdir(fmt.Sprint(p.place(id).home(), "/mounts/1/", files), 0o700) == nil; files++ {
			}
		}
		fill()
		full := &sandbox.Error{Kind: sandbox.CapabilityUnavailable, Requirement: sandbox.RequireResources}
		refusedAs(t, "stage", a.Stage(t.Context(), sandbox.FileWrite{Path: rw + "/a", Content: make([]byte, 1<<20)}), full)
		refusedAs(t, "a new directory", n.Dispatch(t.Context(), func() {}), full)
		dispatched(t, a)
		says(t, p, id, "cd "+rw+"; cat a; ls -d n 2>/dev/null", "full\n")
		fill()
		_, err := p.BeginActiveWrite(t.Context(), id, []string{rw + "/a"})
		refusedAs(t, "begin", err, full)
		noWrites(t, p, id)
	})
}

// TestActiveWrite_RacedByItsWorkload: while batches are published the workload
// swaps a parent with a link out of the mount and reads all the time. It sees a
// batch whole or not at all, and nothing comes to lie outside.
func TestActiveWrite_RacedByItsWorkload(t *testing.T) {
	const rounds = 6
	drivers(t, func(t *testing.T, p *Provider) {
		id := activated(t, p, writeMounts()...)
		mustExit(t, sh(t, p, id, "cd "+rw+"; mkdir x; echo 0 >x/1; echo 0 >x/2"), 0)
		racer, err := p.OpenProcess(t.Context(), id, processID, sandbox.ProcessRequest{
			Executable: "/bin/sh", WorkingDirectory: rw, Environment: map[string]string{},
			// Numbers that grow, read as 1, 2, 1: a later read with a smaller number than an
			// earlier one has seen a half.
			Arguments: []string{"-c", `
(while :; do rm -rf d e; mkdir d; mv -T d e; ln -s /mnt/session/outputs d; rm -f d; mv -T e d; done) 2>/dev/null &
echo ready
while [ ! -e /mnt/session/outputs/stop ]; do
	read a <x/1; read b <x/2; read c <x/1
	[ $b -ge $a ] && [ $c -ge $b ] || { echo "half: $a $b $c"; exit 1; }
done`},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(racer.Output(), make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		committed := 0
		for n := 1; n <= rounds; n++ {
			// The second batch goes where the links are. The files between the two that are
			// read give a half its time.
			for _, targets := range [][]string{{rw + "/x/1"}, {rw + "/x/1", rw + "/d/f"}} {
				for i := range 400 {
					targets = append(targets, fmt.Sprint(rw, "/x/between", i))
				}
				targets = append(targets, rw+"/x/2")
				w, err := p.BeginActiveWrite(t.Context(), id, targets)
				if err != nil {
					refusedAs(t, "begin", err, &sandbox.Error{Reason: sandbox.ReasonOutsideRoot})
					continue
				}
				for _, path := range targets {
					stageIn(t, w, path, fmt.Sprintf("%d\n", n*1000+len(targets)))
				}
				if err := w.Dispatch(t.Context(), func() {}); err == nil {
					committed++
				} else {
					refusedAs(t, "dispatch", err, &sandbox.Error{Reason: sandbox.ReasonChanged})
				}
			}
		}
		if err := p.WriteFile(t.Context(), id, sandbox.FileWrite{Path: sandbox.OutputPath + "/stop"}); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(racer.Output())
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := racer.Wait(t.Context()); err != nil || exit.ExitCode == nil || *exit.ExitCode != 0 {
			t.Errorf("the workload saw %q, %v, %v", said, exit, err)
		}
		if committed < rounds {
			t.Errorf("%d of %d were committed", committed, 2*rounds)
		}
		says(t, p, id, "ls /mnt/session/outputs", "stop\n")
		noWrites(t, p, id)
	})
}
