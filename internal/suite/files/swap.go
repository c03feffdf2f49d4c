package files

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// A check that is not the use can be passed by one file and followed by
// another. The workload of these probes does nothing but take a name from a
// file inside and give it to a way out, and back.
func swapped() []probe.Probe {
	return suite([]probe.Probe{
		{ID: "files.swapped-file", Clause: "CF-FS-01", Source: admits, Requires: []report.Token{report.Filesystem},
			Title: "no read follows a link that takes the place of a file meanwhile", Run: swappedFile},
		{ID: "files.swapped-parent", Clause: "CF-FS-02", Source: admits, Requires: []report.Token{report.Filesystem},
			Title: "no read follows a link that takes the place of a directory meanwhile", Run: swappedParent},
		{ID: "files.swapped-batch", Clause: "CF-FS-03", Source: admits, Requires: []report.Token{report.ReadFiles},
			Title: "no batch follows a link that takes the place of a file meanwhile", Run: swappedBatch},
		{ID: "files.swapped-listing", Clause: "CF-FS-04", Source: admits, Requires: []report.Token{report.ListDir},
			Title: "no listing enters a link that takes the place of a directory meanwhile", Run: swappedListing},
		{ID: "files.write-contained", Clause: "CF-FS-05", Source: admits,
			Title: "no write follows the workload's links out of the output tree", Run: writeContained},
	})
}

// How long a race is run: until it has changed hands often enough, but not for
// ever. A remote provider makes fewer reads in the time.
const (
	enoughReads = 2000
	enoughFlips = 64
	mostReads   = 20000
	mostTime    = 5 * time.Second
)

// race has the workload repeat script in the output tree while look is called
// again and again. look says whether it found the file inside; both answers
// must come, or nothing was raced.
func race(t *probe.T, m *probe.Machine, script string, look func() bool) {
	stop := repeat(t, m, script)
	t.Defer(stop)
	began, flips, reads, before := time.Now(), 0, 0, false
	for (reads < enoughReads || flips < enoughFlips) && reads < mostReads && time.Since(began) < mostTime && t.Context().Err() == nil {
		inside := look()
		if reads > 0 && inside != before {
			flips++
		}
		before = inside
		reads++
	}
	stop()
	t.Observe("%d reads saw the name change hands %d times", reads, flips)
	t.Control("swapped-meanwhile", flips > 1, fmt.Sprintf("%d reads saw the name change hands %d times", reads, flips))
}

// repeat runs script in a loop until the returned function is called: in a
// live process, or beside the reads in a command where there is none.
func repeat(t *probe.T, m *probe.Machine, script string) (stop func()) {
	end := sandbox.OutputPath + "/" + t.Nonce()
	loop := "cd " + sandbox.OutputPath + " && while [ ! -e " + end + " ]; do " + script + "; done"
	c := probe.Command(loop)
	var over func()
	if member := t.Optional().OpenProcess; member != nil {
		p, err := member.OpenProcess(t.Context(), m.ID, t.ID("proc_"), sandbox.ProcessRequest{
			Executable: c.Executable, Arguments: c.Arguments, WorkingDirectory: c.WorkingDirectory, Environment: c.Environment})
		t.Need("open-process", err)
		over = func() { _ = p.Destroy(t.Context()) }
	} else {
		c.TimeoutSeconds = m.Request.Profile.ResourceLimits.MaxDurationSeconds
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = t.Provider().Execute(t.Context(), m.ID, c)
		}()
		over = func() {
			_ = t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: end, Content: []byte{}})
			<-done // bounded by the engine
		}
	}
	return sync.OnceFunc(over)
}

// fileSwap is the script that gives the name to a link to target and back to a
// file with content, whole at every moment.
func fileSwap(t *probe.T, name, target, content string) string {
	link, file := t.Nonce(), t.Nonce()
	return fmt.Sprintf("ln -s %s %s && mv -f %s %s; printf %s > %s && mv -f %s %s", target, link, link, name, content, file, file, name)
}

// directorySwap does the same with a directory, which no rename can replace.
func directorySwap(t *probe.T, name, target string) string {
	aside := t.Nonce()
	return fmt.Sprintf("mv %s %s && ln -s %s %s && rm %s && mv %s %s", name, aside, target, name, name, aside, name)
}

func swappedFile(t *probe.T) {
	m := t.Machine(probe.Shape{})
	name, inside := t.Nonce(), t.Nonce()
	directory, hidden := secret(t, m, name)
	race(t, m, fileSwap(t, name, directory+"/"+name, inside), func() bool {
		got, err := m.Read(sandbox.OutputPath+"/"+name, sandbox.OutputPath, 100)
		t.Check("contained", !bytes.Contains(got, []byte(hidden)), "never what lies outside", "it")
		return err == nil
	})
}

func swappedParent(t *probe.T) {
	m := t.Machine(probe.Shape{})
	folder, name, inside := t.Nonce(), t.Nonce(), t.Nonce()
	directory, hidden := secret(t, m, name)
	made(t, m, "mkdir "+folder+" && printf "+inside+" > "+folder+"/"+name)
	race(t, m, directorySwap(t, folder, directory), func() bool {
		got, err := m.Read(sandbox.OutputPath+"/"+folder+"/"+name, sandbox.OutputPath, 100)
		t.Check("contained", !bytes.Contains(got, []byte(hidden)), "never what lies outside", "it")
		return err == nil
	})
}

func swappedBatch(t *probe.T) {
	m := t.Machine(probe.Shape{})
	name, inside := t.Nonce(), t.Nonce()
	directory, hidden := secret(t, m, name)
	member := sandbox.FileMember{Path: sandbox.OutputPath + "/" + name, MaximumBytes: 100}
	race(t, m, fileSwap(t, name, directory+"/"+name, inside), func() bool {
		got, err := t.Optional().ReadFiles.ReadFiles(t.Context(), m.ID, sandbox.FilesRead{
			AllowedRoot: sandbox.OutputPath, Files: []sandbox.FileMember{member, member, member, member}, AggregateMaximumBytes: 400})
		t.Need("read-files", err)
		for _, f := range got {
			t.Check("contained", !bytes.Contains(f.Content, []byte(hidden)), "never what lies outside", "it")
		}
		return len(got) > 0 && got[0].Refused == ""
	})
}

// swappedListing leaves it to the provider whether it lists what it found or
// says that the tree changed.
func swappedListing(t *probe.T) {
	m := t.Machine(probe.Shape{})
	member := t.Optional().ListDir
	if member == nil {
		t.NotHere("list_dir is claimed, and there is no such member")
	}
	folder, inside, outside := t.Nonce(), t.Nonce(), t.Nonce()
	directory, _ := secret(t, m, outside)
	made(t, m, "mkdir "+folder+" && echo > "+folder+"/"+inside)
	race(t, m, directorySwap(t, folder, directory), func() bool {
		got, err := member.ListDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 100})
		found := false
		for _, e := range got {
			t.Check("contained", !strings.HasSuffix(e.Path, outside), "never a name from outside", e.Path)
			found = found || strings.HasSuffix(e.Path, folder+"/"+inside)
		}
		return err == nil && found
	})
}

// writeContained asks that nothing outside changes. Whether such a write is
// refused, or takes the place of the link, is the provider's.
func writeContained(t *probe.T) {
	m := t.Machine(probe.Shape{})
	name, other := t.Nonce(), t.Nonce()
	directory, content := secret(t, m, name)
	file, folder := t.Nonce(), t.Nonce()
	made(t, m, fmt.Sprintf("ln -s %s/%s %s && ln -s %s %s && [ -s %s ] && [ -s %s/%s ]", directory, name, file, directory, folder, file, folder, name))
	for id, path := range map[string]string{"link": file, "linked directory": folder + "/" + other} {
		err := t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: sandbox.OutputPath + "/" + path, Content: []byte(t.Nonce())})
		t.Observe("a write to a %s is refused: %v", id, err != nil)
	}
	t.Check("last", sees(m, fmt.Sprintf(`read s < %s/%s; [ "$s" = %s ]`, directory, name, content)), "the file outside as it was", "another")
	t.Check("parent", !sees(m, "[ -e "+directory+"/"+other+" ]"), "nothing new outside", "a file")
}
