package files

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"slices"
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

// How long a race is run: so many turns, with so many reads beside each. A
// remote provider makes fewer of them in the time, and a run of little volume
// needs fewer.
const (
	turns    = 128
	fewTurns = 24
	beside   = 16
	mostTime = 10 * time.Second
)

// swap is two scripts: one gives the name to the way out, one gives it back.
type swap struct{ out, back string }

// race has the workload swap in the output tree while look is called again and
// again. look says whether it found the file inside, and whether it got what
// lies outside; both states of the name must show, or nothing was raced.
func race(t *probe.T, m *probe.Machine, s swap, look func() (inside, leaked bool)) {
	turn, stop := repeat(t, m, s)
	stop = sync.OnceFunc(stop)
	t.Defer(stop)
	most := turns
	if t.StreamBytes() < small {
		most = fewTurns
	}
	began, reads, states := time.Now(), 0, map[bool]int{}
	for n := 0; n < most || min(states[true], states[false]) < beside; n++ {
		if time.Since(began) > mostTime || t.Context().Err() != nil {
			break
		}
		pending := make(chan error, 1)
		go func() { pending <- turn() }()
		for range beside {
			inside, leaked := look()
			states[inside]++
			reads++
			if t.Check("contained", !leaked, "nothing from outside", "it"); leaked {
				stop()
				t.Stop()
			}
			runtime.Gosched() // a workload in this process gets its turn
		}
		if err := <-pending; err != nil {
			t.Unjudged("swapped-meanwhile", "the workload stopped swapping: "+err.Error())
		}
	}
	stop()
	t.Observe("of %d reads %d found the file inside", reads, states[true])
	t.Control("swapped-meanwhile", states[true] > 0 && states[false] > 0, fmt.Sprintf("of %d reads %d found the file inside", reads, states[true]))
}

// repeat has s run by halves, one at each turn, in a live process: so it never
// spins ahead of the reads and starves them. Where there is no such process, a
// command does nothing else beside the reads until it is stopped.
func repeat(t *probe.T, m *probe.Machine, s swap) (turn func() error, stop func()) {
	if member := t.Optional().OpenProcess; member != nil {
		c := probe.Command("cd " + sandbox.OutputPath + " && while read x; do " + s.out + "; echo; read x; " + s.back + "; echo; done")
		p, err := member.OpenProcess(t.Context(), m.ID, "pr_"+t.Nonce()+t.Nonce(), sandbox.ProcessRequest{
			Executable: c.Executable, Arguments: c.Arguments, WorkingDirectory: c.WorkingDirectory, Environment: c.Environment})
		t.Need("open-process", err)
		turn = func() error {
			_, err := probe.Bounded(t, func() (int, error) {
				if _, err := p.Input().Write([]byte("\n")); err != nil {
					return 0, err
				}
				return io.ReadFull(p.Output(), make([]byte, 1))
			})
			return err
		}
		return turn, func() { _ = p.Destroy(t.Context()) }
	}
	end := sandbox.OutputPath + "/" + t.Nonce()
	c := probe.Command("cd " + sandbox.OutputPath + " && while [ ! -e " + end + " ]; do " + s.out + "; " + s.back + "; done")
	c.TimeoutSeconds = m.Request.Profile.ResourceLimits.MaxDurationSeconds
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = t.Provider().Execute(t.Context(), m.ID, c)
	}()
	return func() error { return nil }, func() {
		_ = t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: end, Content: []byte{}})
		<-done // bounded by the engine
	}
}

// fileSwap gives the name to a link to target and back to a file with content.
// The name is there and whole at every moment.
func fileSwap(t *probe.T, name, target, content string) swap {
	link, file := t.Nonce(), t.Nonce()
	return swap{fmt.Sprintf("ln -s %s %s && mv -f %s %s", target, link, link, name), fmt.Sprintf("printf %s > %s && mv -f %s %s", content, file, file, name)}
}

// directorySwap does so with a directory, which no rename can replace.
func directorySwap(t *probe.T, name, target string) swap {
	aside := t.Nonce()
	return swap{fmt.Sprintf("mv %s %s && ln -s %s %s", name, aside, target, name), fmt.Sprintf("rm %s && mv %s %s", name, aside, name)}
}

func swappedFile(t *probe.T) {
	m := t.Machine(probe.Shape{})
	name, inside := t.Nonce(), t.Nonce()
	directory, hidden := secret(t, m, name)
	race(t, m, fileSwap(t, name, directory+"/"+name, inside), func() (bool, bool) {
		got, err := m.Read(sandbox.OutputPath+"/"+name, sandbox.OutputPath, 100)
		return err == nil, bytes.Contains(got, []byte(hidden))
	})
}

func swappedParent(t *probe.T) {
	m := t.Machine(probe.Shape{})
	folder, name, inside := t.Nonce(), t.Nonce(), t.Nonce()
	directory, hidden := secret(t, m, name)
	made(t, m, "mkdir "+folder+" && printf "+inside+" > "+folder+"/"+name)
	race(t, m, directorySwap(t, folder, directory), func() (bool, bool) {
		got, err := m.Read(sandbox.OutputPath+"/"+folder+"/"+name, sandbox.OutputPath, 100)
		return err == nil, bytes.Contains(got, []byte(hidden))
	})
}

func swappedBatch(t *probe.T) {
	m := t.Machine(probe.Shape{})
	name, inside := t.Nonce(), t.Nonce()
	directory, hidden := secret(t, m, name)
	member := sandbox.FileMember{Path: sandbox.OutputPath + "/" + name, MaximumBytes: 100}
	race(t, m, fileSwap(t, name, directory+"/"+name, inside), func() (bool, bool) {
		got, err := t.Optional().ReadFiles.ReadFiles(t.Context(), m.ID, sandbox.FilesRead{
			AllowedRoot: sandbox.OutputPath, Files: []sandbox.FileMember{member, member, member, member}, AggregateMaximumBytes: 400})
		t.Need("read-files", err)
		leaked := slices.ContainsFunc(got, func(f sandbox.FileResult) bool { return bytes.Contains(f.Content, []byte(hidden)) })
		return len(got) > 0 && got[0].Refused == "", leaked
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
	race(t, m, directorySwap(t, folder, directory), func() (bool, bool) {
		got, err := member.ListDir(t.Context(), m.ID, sandbox.Listing{Root: sandbox.OutputPath, MaxEntries: 100})
		has := func(name string) bool {
			return slices.ContainsFunc(got, func(e sandbox.DirEntry) bool { return e.Path == folder+"/"+name })
		}
		return err == nil && has(inside), has(outside)
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
	for _, path := range []string{file, folder + "/" + other} {
		err := t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: sandbox.OutputPath + "/" + path, Content: []byte(t.Nonce())})
		t.Observe("a write to a link or through one is refused: %v", err != nil)
	}
	t.Check("last", sees(m, fmt.Sprintf(`read s < %s/%s; [ "$s" = %s ]`, directory, name, content)), "the file outside as it was", "another")
	t.Check("parent", !sees(m, "[ -e "+directory+"/"+other+" ]"), "nothing new outside", "a file")
}
