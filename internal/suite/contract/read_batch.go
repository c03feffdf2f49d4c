package contract

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/sandbox"
)

// The probes of batches leave the number of the results and their bounds to
// the standing checks.
func batches() []probe.Probe {
	const operations = `contract "The operations", row readFiles`
	const absent = `contract "Optional capabilities: absent versus wrong", row readFiles`
	const bounds = `contract "Bounds"`
	batch := []report.Token{report.ReadFiles}
	list := []probe.Probe{
		{Suite: report.Contract, ID: "read-files.order", Clause: "CF-CR-20", Source: absent, Requires: batch, Title: "the results come in the order of the members", Run: batchOrder},
		{Suite: report.Contract, ID: "read-files.refusals", Clause: "CF-CR-21", Source: operations, Requires: batch, Title: "each member has an answer of its own, content or one of the four refusals", Run: batchRefusals},
		{Suite: report.Contract, ID: "read-files.one-root", Clause: "CF-CR-22", Source: `contract "Paths, mounts, and what the Runner admits first"`,
			Requires: append(slices.Clone(batch), report.Mounts), Title: "no member leads from its root into another", Run: batchRoot},
		{Suite: report.Contract, ID: "read-files.whole-budget", Clause: "CF-CR-23", Source: bounds, Requires: batch, Title: "a batch may fill its aggregate to the last byte", Run: batchBudget},
		{Suite: report.Contract, ID: "read-files.most", Clause: "CF-CR-24", Source: bounds, Requires: batch, Title: "1 file and 1,024 files are a batch", Run: batchMost},
		{Suite: report.Contract, ID: "read-files.agrees", Clause: "CF-CR-25", Source: absent, Requires: append(slices.Clone(batch), report.Filesystem),
			Title: "a batch reads what one read after the other reads", Run: batchAgrees},
		{Suite: report.Contract, ID: "read-files.over-bound", Clause: "CF-CR-26", Source: bounds, Requires: batch, Title: "a batch of 1,025 files or of over 128 MiB is refused", Run: batchOver},
	}
	return list
}

// readAll reads members of the output tree, each with room for most bytes. A
// result that the standing checks refuse is given as nil.
func readAll(t *probe.T, m *probe.Machine, most int64, paths ...string) []sandbox.FileResult {
	q := sandbox.FilesRead{AllowedRoot: sandbox.OutputPath, AggregateMaximumBytes: most * int64(len(paths))}
	for _, path := range paths {
		q.Files = append(q.Files, sandbox.FileMember{Path: path, MaximumBytes: most})
	}
	got, err := t.Optional().ReadFiles.ReadFiles(t.Context(), m.ID, q)
	t.Need("read-files", err)
	if len(got) != len(paths) || slices.ContainsFunc(got, func(f sandbox.FileResult) bool { return int64(len(f.Content)) > most }) {
		t.Stop()
	}
	return got
}

func batchOrder(t *probe.T) {
	m := t.Machine(probe.Shape{})
	var paths, contents []string
	for range 5 {
		paths, contents = append(paths, inOutput(t)), append(contents, t.Nonce())
		write(t, m, paths[len(paths)-1], contents[len(contents)-1])
	}
	for n, got := range readAll(t, m, 100, paths...) {
		t.Check("content", string(got.Content) == contents[n], contents[n], got.Content)
	}
}

func batchRefusals(t *probe.T) {
	m := t.Machine(probe.Shape{})
	directory, name, content := secret(t, m)
	file, folder, link, large := inOutput(t), inOutput(t), inOutput(t), inOutput(t)
	write(t, m, file, content)
	write(t, m, large, content+content+content)
	t.Control("workload-writes", sees(m, "mkdir "+folder+" && ln -s "+directory+"/"+name+" "+link), "the workload could not make a directory and a link")
	followed(t, m, link, content)
	got := readAll(t, m, 40, inOutput(t), folder, file, link, large)
	for n, want := range []sandbox.FileResult{
		{Refused: sandbox.RefusedNotFound}, {Refused: sandbox.RefusedNotRegular}, {Content: []byte(content)},
		{Refused: sandbox.RefusedOutsideRoot}, {Refused: sandbox.RefusedTooLarge},
	} {
		id := cmp.Or(string(want.Refused), "content")
		t.Check(id, got[n].Refused == want.Refused && bytes.Equal(got[n].Content, want.Content), id, cmp.Or(string(got[n].Refused), fmt.Sprintf("%q", got[n].Content)))
	}
}

// batchRoot links from the output tree to a mount: a place that the port may
// read, but not in this batch.
func batchRoot(t *probe.T) {
	mount := mountAt(t, sandbox.AccessReadOnly)
	file := sandbox.FileWrite{Path: mount.MountPath + "/" + t.Nonce(), Content: []byte(t.Nonce())}
	m := t.Machine(probe.Shape{Mounts: []sandbox.Mount{mount}, Files: []sandbox.FileWrite{file}})
	link := inOutput(t)
	m.Sh("ln -s " + file.Path + " " + link)
	followed(t, m, link, string(file.Content))
	got := readAll(t, m, 100, link)
	t.Check("refused", got[0].Refused == sandbox.RefusedOutsideRoot, string(sandbox.RefusedOutsideRoot), string(got[0].Refused))
}

func batchBudget(t *probe.T) {
	m := t.Machine(probe.Shape{})
	content := t.Nonce()
	paths := []string{inOutput(t), inOutput(t), inOutput(t)}
	for _, path := range paths {
		write(t, m, path, content)
	}
	for _, got := range readAll(t, m, int64(len(content)), paths...) {
		t.Check("content", string(got.Content) == content, content, "refused "+string(got.Refused))
	}
}

func batchMost(t *probe.T) {
	m, directory, content := t.Machine(probe.Shape{}), inOutput(t), t.Nonce()
	t.Control("workload-writes", sees(m, fmt.Sprintf("mkdir %s && cd %s && seq 1 %d | while read i; do printf %s > f$i; done && [ -s f%d ]",
		directory, directory, sandbox.MaxReadFiles, content, sandbox.MaxReadFiles)), "the workload could not write 1,024 files")
	var paths []string
	for n := range sandbox.MaxReadFiles {
		paths = append(paths, fmt.Sprintf("%s/f%d", directory, n+1))
	}
	for _, all := range [][]string{paths[:1], paths} {
		right := 0
		for _, got := range readAll(t, m, 100, all...) {
			if string(got.Content) == content {
				right++
			}
		}
		t.Check("content", right == len(all), fmt.Sprint(len(all), " files"), fmt.Sprint(right))
	}
}

func batchAgrees(t *probe.T) {
	m := t.Machine(probe.Shape{})
	paths := []string{inOutput(t), inOutput(t), inOutput(t)}
	for n, end := range []string{`\n\n`, `\n`, ""} {
		write(t, m, paths[n], t.Nonce()+end)
	}
	for n, got := range readAll(t, m, 100, paths...) {
		content, err := m.Read(paths[n], sandbox.OutputPath, 100)
		t.Check("content", err == nil && bytes.Equal(got.Content, content), fmt.Sprintf("%q", content), got.Content)
	}
	large := ample(t, 1<<20+1)
	t.Need("write", t.Provider().WriteFile(t.Context(), m.ID, sandbox.FileWrite{Path: paths[1], Content: large}))
	for _, got := range readAll(t, m, int64(len(large))+1, paths[1]) {
		t.Check("large", bytes.Equal(got.Content, large), fmt.Sprintf("%d bytes", len(large)), fmt.Sprintf("%d bytes", len(got.Content)))
	}
}

// batchOver asks what the Runner would not: the provider enforces the bounds
// too.
func batchOver(t *probe.T) {
	m := t.Machine(probe.Shape{})
	ask := func(id string, files int, most int64, last int64) {
		q := sandbox.FilesRead{AllowedRoot: sandbox.OutputPath}
		for n := range files {
			bound := most
			if n == files-1 {
				bound = last
			}
			q.Files = append(q.Files, sandbox.FileMember{Path: inOutput(t), MaximumBytes: bound})
			q.AggregateMaximumBytes += bound
		}
		_, err := t.Optional().ReadFiles.ReadFiles(t.Context(), m.ID, q)
		t.Check(id, refused(err), "a refusal", err)
	}
	ask("files", sandbox.MaxReadFiles+1, 1, 1)
	ask("aggregate", sandbox.MaxReadFilesBytes/sandbox.MaxFileBytes+1, sandbox.MaxFileBytes, 1)
}
