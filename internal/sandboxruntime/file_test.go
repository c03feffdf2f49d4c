package sandboxruntime_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/google/go-cmp/cmp"
)

// TestPaths_WriteScopeNarrowsAtActivation.
func TestPaths_WriteScopeNarrowsAtActivation(t *testing.T) {
	outside := &sandbox.Error{Kind: sandbox.OperationFailed, Operation: sandbox.OpWriteFile, Reason: sandbox.ReasonOutsideRoot}
	sealed := sandbox.Conflict(sandbox.OpWriteFile, "provisioning", "active")
	malformed := &sandbox.Error{Kind: sandbox.OperationFailed, Reason: sandbox.ReasonInvalidRequest}
	for _, c := range []struct {
		path                 string
		provisioning, active error
	}{
		{repo + "/a", nil, sealed},
		{notes + "/a", nil, sealed}, // read-only is for the workload, not for staging
		{cache + "/a", nil, sealed},
		{sandbox.OutputPath + "/a/b", nil, nil},
		{sandbox.OutputPath, outside, outside}, // a root is no file
		{repo, outside, outside},
		{"/etc/passwd", outside, outside},
		{"/workspace/repository", outside, outside}, // a prefix of text is no parent
		{"/workspace/.checkfu/state", outside, outside},
		{sandbox.OutputPath + "/../../x", malformed, malformed},
		{"relative", malformed, malformed},
		{"/nul\x00", malformed, malformed},
	} {
		b := newBench(t)
		id := b.provision(durable)
		write := func() error { return b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: c.path}) }
		check := func(when string, want error) {
			before := b.called(sandbox.OpWriteFile)
			err := write()
			if want == nil && err != nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%s %s: got %v, want %v", c.path, when, err, want)
			}
			if called := b.called(sandbox.OpWriteFile) > before; called != (want == nil) {
				t.Errorf("%s %s: provider called: %v", c.path, when, called)
			}
		}
		check("provisioning", c.provisioning)
		if _, err := b.runtime.Activate(b.ctx, id); err != nil {
			t.Fatal(err)
		}
		check("active", c.active)
	}
}

// TestBounds_FileContent at the limit and one over, in both directions.
func TestBounds_FileContent(t *testing.T) {
	b := newBench(t)
	id := b.provision(durable)
	big := make([]byte, sandbox.MaxFileBytes+1)
	if err := b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: repo + "/a", Content: big}); !errors.Is(err, sandbox.TooLarge(sandbox.OpWriteFile, repo+"/a", sandbox.MaxFileBytes)) {
		t.Error(err)
	}
	if err := b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: repo + "/a", Content: big[1:]}); err != nil {
		t.Error(err)
	}
	if _, err := b.runtime.Activate(b.ctx, id); err != nil {
		t.Fatal(err)
	}
	if content, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", sandbox.MaxFileBytes); err != nil || len(content) != sandbox.MaxFileBytes {
		t.Error(err)
	}
	if _, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", sandbox.MaxFileBytes-1); !errors.Is(err, &sandbox.Error{Kind: sandbox.FileTooLarge}) {
		t.Error(err)
	}
	if _, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", sandbox.MaxFileBytes+1); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}) {
		t.Error(err)
	}
	b.fake.lieFile = func([]byte) []byte { return make([]byte, 11) }
	_, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", 10)
	wantField(t, err, sandbox.OpReadFile, "content")
	if _, err := b.runtime.ReadFile(b.ctx, id, repo+"/a", 11); err != nil {
		t.Error(err)
	}
}

// TestPaths_SymlinkStagingNeedsTheClaim.
func TestPaths_SymlinkStagingNeedsTheClaim(t *testing.T) {
	link := sandbox.FileWrite{Path: repo + "/l", Symlink: "a"}
	b := newBench(t)
	if err := b.runtime.WriteFile(b.ctx, b.provision(durable), link); !errors.Is(err, &sandbox.Error{Kind: sandbox.CapabilityUnavailable}) {
		t.Error(err)
	}
	b = newBench(t, func(f *fake) { f.envelope.SymlinkStaging = true })
	if err := b.runtime.WriteFile(b.ctx, b.provision(durable), link); err != nil {
		t.Error(err)
	}
}

// TestPaths_ReadsCarryTheirRoot: the deepest mount, derived here.
func TestPaths_ReadsCarryTheirRoot(t *testing.T) {
	b := newBench(t)
	id := b.staged()
	members := []sandbox.FileMember{
		{Path: notes + "/n", MaximumBytes: 9}, {Path: repo + "/a", MaximumBytes: 5}, {Path: cache + "/v", MaximumBytes: 7},
		{Path: "/etc/shadow", MaximumBytes: 1}, {Path: repo + "/b", MaximumBytes: 6}, {Path: sandbox.OutputPath + "/none", MaximumBytes: 1},
		{Path: repo, MaximumBytes: 1}, {Path: repo + "/a", MaximumBytes: 0},
	}
	want := []sandbox.FileResult{
		{Content: []byte("n")}, {Content: []byte("a")}, {Content: []byte("v")}, {Refused: sandbox.RefusedOutsideRoot},
		{Content: []byte("b")}, {Refused: sandbox.RefusedNotFound}, {Refused: sandbox.RefusedOutsideRoot}, {Refused: sandbox.RefusedTooLarge},
	}
	got, err := b.runtime.ReadFiles(b.ctx, id, members)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("order was not restored:\n", diff)
	}
	// Four roots, four calls, each with its own exact budget.
	calls := []sandbox.FilesRead{
		{AllowedRoot: notes, Files: members[:1], AggregateMaximumBytes: 9},
		{AllowedRoot: repo, Files: []sandbox.FileMember{members[1], members[4], members[7]}, AggregateMaximumBytes: 11},
		{AllowedRoot: cache, Files: members[2:3], AggregateMaximumBytes: 7},
		{AllowedRoot: sandbox.OutputPath, Files: members[5:6], AggregateMaximumBytes: 1},
	}
	if diff := cmp.Diff(calls, b.fake.reads); diff != "" {
		t.Error(diff)
	}
	for _, q := range b.fake.reads {
		if err := q.Validate(); err != nil {
			t.Error(err)
		}
	}
	// Optional capabilities, row readFiles: identical results without it.
	b.fake.optional.ReadFiles = nil
	two := newBench(t, func(f *fake) { f.optional.ReadFiles = nil })
	sequential, err := two.runtime.ReadFiles(two.ctx, two.staged(), members)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, sequential); diff != "" {
		t.Error(diff)
	}
	if n := two.called(sandbox.OpReadFile); n != 6 {
		t.Errorf("%d sequential reads", n)
	}
}

// staged returns an active instance with a few files.
func (b *bench) staged() sandbox.InstanceID {
	b.Helper()
	id := b.provision(durable)
	for path, content := range map[string]string{notes + "/n": "n", repo + "/a": "a", repo + "/b": "b", cache + "/v": "v"} {
		if err := b.runtime.WriteFile(b.ctx, id, sandbox.FileWrite{Path: path, Content: []byte(content)}); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := b.runtime.Activate(b.ctx, id); err != nil {
		b.Fatal(err)
	}
	return id
}

// TestReadFiles_SequentialFailsOnARealFailure: only the four refusals of the
// union are answers.
func TestReadFiles_SequentialFailsOnARealFailure(t *testing.T) {
	b := newBench(t, func(f *fake) { f.optional.ReadFiles = nil })
	id := b.staged()
	closed := sandbox.Unavailable(sandbox.OpReadFile, sandbox.RequireContainedRead, "", "")
	b.fake.on[sandbox.OpReadFile] = func(context.Context) error { return closed }
	if _, err := b.runtime.ReadFiles(b.ctx, id, []sandbox.FileMember{{Path: repo + "/a", MaximumBytes: 1}}); !errors.Is(err, closed) {
		t.Error(err)
	}
	b.fake.on[sandbox.OpReadFile] = func(context.Context) error {
		return sandbox.FailedAt(sandbox.OpReadFile, repo+"/a", sandbox.ReasonProviderError, nil)
	}
	if got, err := b.runtime.ReadFiles(b.ctx, id, []sandbox.FileMember{{Path: repo + "/a", MaximumBytes: 1}}); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonProviderError}) {
		t.Error(got, err)
	}
}

// TestReadFiles_WrongResultsFailTheWholeBatch.
func TestReadFiles_WrongResultsFailTheWholeBatch(t *testing.T) {
	members := []sandbox.FileMember{{Path: repo + "/a", MaximumBytes: 1}, {Path: repo + "/b", MaximumBytes: 2}}
	for name, c := range map[string]struct {
		lie   func([]sandbox.FileResult) []sandbox.FileResult
		field string
	}{
		"short":              {func(r []sandbox.FileResult) []sandbox.FileResult { return r[:1] }, "files"},
		"none":               {func([]sandbox.FileResult) []sandbox.FileResult { return nil }, "files"},
		"one too many":       {func(r []sandbox.FileResult) []sandbox.FileResult { return append(r, r[0]) }, "files"},
		"over its own bound": {func(r []sandbox.FileResult) []sandbox.FileResult { r[0].Content = []byte("ab"); return r }, "files[0].content"},
		"over the budget":    {func(r []sandbox.FileResult) []sandbox.FileResult { r[1].Content = []byte("abc"); return r }, "files[1].content"},
		"out of order": {func(r []sandbox.FileResult) []sandbox.FileResult {
			return []sandbox.FileResult{{Content: []byte("bb")}, r[0]}
		}, "files[0].content"},
		"both": {func(r []sandbox.FileResult) []sandbox.FileResult { r[0].Refused = sandbox.RefusedNotFound; return r }, "files[0].content"},
		"a fifth reason": {func(r []sandbox.FileResult) []sandbox.FileResult {
			r[1] = sandbox.FileResult{Refused: "tired"}
			return r
		}, "files[1].refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id := b.staged()
			b.fake.lieFiles = c.lie
			got, err := b.runtime.ReadFiles(b.ctx, id, members)
			wantField(t, err, sandbox.OpReadFiles, c.field)
			if got != nil {
				t.Error("a part of the batch was handed over")
			}
		})
	}
}

// TestBounds_ReadFiles: a batch over a bound is refused, never split.
func TestBounds_ReadFiles(t *testing.T) {
	batch := func(n int, each int64) []sandbox.FileMember {
		return slices.Repeat([]sandbox.FileMember{{Path: repo + "/a", MaximumBytes: each}}, n)
	}
	for name, c := range map[string]struct {
		members []sandbox.FileMember
		ok      bool
	}{
		"none":            {nil, false},
		"1024":            {batch(1024, 1), true},
		"1025":            {batch(1025, 1), false},
		"128 MiB":         {batch(8, 16<<20), true},
		"128 MiB + 1":     {append(batch(8, 16<<20), batch(1, 1)...), false},
		"16 MiB + 1":      {batch(1, 16<<20+1), false},
		"negative":        {batch(1, -1), false},
		"sum over 64 bit": {batch(3, 1<<62), false},
		"bad path":        {[]sandbox.FileMember{{Path: "a/../b"}}, false},
	} {
		b := newBench(t)
		_, err := b.runtime.ReadFiles(b.ctx, b.staged(), c.members)
		if c.ok && err != nil || !c.ok && !errors.Is(err, &sandbox.Error{Operation: sandbox.OpReadFiles, Reason: sandbox.ReasonInvalidRequest}) {
			t.Error(name, err)
		}
		if n := b.called(sandbox.OpReadFiles); c.ok != (n == 1) {
			t.Errorf("%s: %d calls", name, n)
		}
	}
}

// TestListings_WrongIsAProtocolFailure.
func TestListings_WrongIsAProtocolFailure(t *testing.T) {
	b := newBench(t)
	id := b.staged()
	two := sandbox.Listing{Root: repo, MaxEntries: 2}
	// repo holds a, b and, through its nested mount, vendor/v.
	_, err := b.runtime.ListDir(b.ctx, id, two)
	wantField(t, err, sandbox.OpListDir, "entries")
	_, err = b.runtime.ListProjectDir(b.ctx, id, two)
	wantField(t, err, sandbox.OpListProjectDir, "leaves")
	three := sandbox.Listing{Root: repo, MaxEntries: 3}
	b.fake.lieEntries = func(e []sandbox.DirEntry) []sandbox.DirEntry { e[0].Digest = ""; return e }
	_, err = b.runtime.ListDir(b.ctx, id, three)
	wantField(t, err, sandbox.OpListDir, "entries[0].digest")
	for field, lie := range map[string]func(*sandbox.ProjectListing){
		"complete":         func(l *sandbox.ProjectListing) { l.Complete = false },
		"leaves[0].type":   func(l *sandbox.ProjectListing) { l.Leaves[0].Type = "" },
		"leaves[1].path":   func(l *sandbox.ProjectListing) { l.Leaves[1].Path = l.Leaves[0].Path },
		"leaves[2].path":   func(l *sandbox.ProjectListing) { l.Leaves[2].Path = "../v" },
		"leaves[2].digest": func(l *sandbox.ProjectListing) { l.Leaves[2].Type = sandbox.LeafSocket },
	} {
		b.fake.lieListing = lie
		_, err := b.runtime.ListProjectDir(b.ctx, id, three)
		wantField(t, err, sandbox.OpListProjectDir, field)
	}
	for _, root := range []string{"/", "/etc", "/workspace"} {
		if _, err := b.runtime.ListDir(b.ctx, id, sandbox.Listing{Root: root, MaxEntries: 1}); err == nil {
			t.Error("listed", root)
		}
	}
	for _, n := range []int64{0, -1, sandbox.MaxListEntries + 1} {
		if _, err := b.runtime.ListDir(b.ctx, id, sandbox.Listing{Root: repo, MaxEntries: n}); !errors.Is(err, &sandbox.Error{Reason: sandbox.ReasonInvalidRequest}) {
			t.Error(n, err)
		}
	}
}
