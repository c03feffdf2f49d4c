package runner

import (
	"context"
	"strconv"
	"sync"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/sandbox"
)

// stagers is how many files are written at once. Each holds one file of at
// most mount.MaxFile bytes.
const stagers = 4

// plan reads every source and says what goes into its mount.
func (s *session) plan(ctx context.Context) error {
	links := s.runtime.Capabilities().SymlinkStaging
	for i, m := range s.spec.declared() {
		var p *mount.Plan
		var err error
		if m.Kind == sandbox.MountGit {
			r := s.spec.Repo
			p, err = mount.Git(ctx, mount.GitOptions{
				Dir: r.Dir, Revision: r.Revision, CommittedOnly: r.Committed, Untracked: r.Untracked,
				Links: links, TempDir: s.spec.TempDir,
			})
		} else {
			source := s.spec.Mounts[i-len(s.spec.declared())+len(s.spec.Mounts)].Source
			p, err = mount.Directory(ctx, mount.DirOptions{Dir: source, Links: links})
		}
		if err != nil {
			return &SourceError{Kind: m.Kind, Err: err}
		}
		s.plans = append(s.plans, planned{m, p})
		s.record.Mounts = append(s.record.Mounts, describe(m, p))
	}
	return s.fits()
}

// fits refuses what cannot be staged whole before anything is allocated for it.
func (s *session) fits() error {
	var bytes int64
	for _, p := range s.plans {
		bytes += p.plan.Bytes
	}
	if disk := s.spec.Resources.DiskBytes; bytes > disk {
		return &sandbox.Invalid{Field: DiskField, Expected: "at least what is staged, " + strconv.FormatInt(bytes, 10) + " bytes", Got: strconv.FormatInt(disk, 10)}
	}
	return nil
}

func describe(m sandbox.Mount, p *mount.Plan) Mount {
	d := Mount{
		MountPath: m.MountPath, Access: m.Access, Kind: m.Kind, Commit: p.Commit, Dirty: p.Dirty, TreeDigest: sandbox.Digest(p.Digest()),
		Files: int64(len(p.Files)), Links: int64(len(p.Links)), Bytes: p.Bytes,
		SkipCount: map[string]int64{}, Summary: text(p.Summary),
	}
	for reason, n := range p.Counts {
		d.SkipCount[string(reason)] = int64(n)
	}
	for _, skip := range p.Skips {
		d.Skips = append(d.Skips, Name(skip.Path, string(skip.Reason)))
	}
	return d
}

// stage writes every planned file and link, a bounded number at once; the
// first failure stops the others.
func (s *session) stage(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan func() (sandbox.FileWrite, error))
	meter := s.meter(PhaseStage)
	var workers sync.WaitGroup
	for range stagers {
		workers.Go(func() {
			for job := range jobs {
				w, err := job()
				if err == nil {
					err = s.runtime.WriteFile(ctx, s.id, w)
				}
				if err != nil {
					cancel(err)
					return
				}
				meter.add(1)
			}
		})
	}
	feed := func(job func() (sandbox.FileWrite, error)) bool {
		select {
		case jobs <- job:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for _, p := range s.plans {
		if !p.feed(feed) {
			break
		}
	}
	close(jobs)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// feed offers every leaf of the mount. Contents are read, and their digests
// checked, by the worker that writes them.
func (p planned) feed(offer func(func() (sandbox.FileWrite, error)) bool) bool {
	for _, f := range p.plan.Files {
		if !offer(func() (sandbox.FileWrite, error) {
			content, err := f.Bytes()
			return sandbox.FileWrite{Path: p.mount.MountPath + "/" + f.Path, Content: content, Executable: f.Executable}, err
		}) {
			return false
		}
	}
	for _, l := range p.stagedLinks() {
		if !offer(func() (sandbox.FileWrite, error) {
			return sandbox.FileWrite{Path: p.mount.MountPath + "/" + l.Path, Symlink: l.Target}, nil
		}) {
			return false
		}
	}
	return true
}

// stagedLinks are the links of the plan that were promised to be staged.
func (p planned) stagedLinks() []mount.Link {
	var links []mount.Link
	staged := p.plan.Baseline().Links
	for _, l := range p.plan.Links {
		if _, ok := staged[l.Path]; ok {
			links = append(links, l)
		}
	}
	return links
}

// meter counts the work of one phase for the person who waits.
type meter struct {
	mu          sync.Mutex
	done, total int64
	tell        func(done, total int64)
}

func (s *session) meter(phase Phase) *meter {
	m := &meter{tell: func(int64, int64) {}}
	if s.spec.Progress != nil {
		m.tell = func(done, total int64) { s.spec.Progress(phase, done, total) }
	}
	for _, p := range s.plans {
		m.total += int64(len(p.plan.Files) + len(p.plan.Links))
	}
	return m
}

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	m.tell(m.done, m.total)
}
