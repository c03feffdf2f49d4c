package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// lives is how many whole lives each side of runtimeCost goes through.
const lives = 1500

// runtimeCost runs the same life of an instance on a bare memory provider and
// through the runtime over another one. The difference of a member's medians
// is what the runtime itself costs for each call of that member.
func runtimeCost(ctx context.Context, w *world) error {
	q := memoryRequest()
	alone, under := memory.New(memory.Options{Seed: "bare", Clock: wall{}}), memory.New(memory.Options{Seed: "through", Clock: wall{}})
	r, err := sandboxruntime.Select(ctx, []sandboxruntime.Adapter{{Provider: under}},
		sandboxruntime.Wanted{Target: q.Target, Profile: q.Profile, Platform: q.Platform, RootImage: q.RootImage, Mounts: q.Mounts})
	if err != nil {
		return err
	}
	bare, through := clocks{}, clocks{}
	for i := -20; i < lives; i++ {
		if i == 0 { // what came before was to warm up
			bare, through = clocks{}, clocks{}
		}
		if err := bare.live(ctx, alone, q); err != nil {
			return fmt.Errorf("bare: %w", err)
		}
		if err := through.live(ctx, r.Provider(), q); err != nil {
			return fmt.Errorf("through the runtime: %w", err)
		}
	}
	const counted = 200 // lives whose allocations are counted; the same each time
	bareAllocs, throughAllocs := clocks{}, clocks{}
	for range counted {
		if err := bareAllocs.life(ctx, alone, q, allocations); err != nil {
			return fmt.Errorf("bare: %w", err)
		}
		if err := throughAllocs.life(ctx, r.Provider(), q, allocations); err != nil {
			return fmt.Errorf("through the runtime: %w", err)
		}
	}
	names := make([]string, 0, len(bare))
	for name := range bare {
		names = append(names, name)
	}
	slices.Sort(names)
	worst, worstName := samples{0}, ""
	for _, name := range names {
		cost := through[name].median() - bare[name].median()
		w.rep.note("runtime's own cost of %s: %.0f ns and %.0f allocations (bare %.0f and %.0f, through %.0f and %.0f)", name,
			1000*cost, throughAllocs[name].median()-bareAllocs[name].median(),
			1000*bare[name].median(), bareAllocs[name].median(), 1000*through[name].median(), throughAllocs[name].median())
		if cost > worst[0] {
			worst, worstName = samples{cost}, name
		}
	}
	w.rep.add(line{what: "runtime's own cost for a call, worst of " + fmt.Sprint(len(names)) + " members", note: worstName, unit: "µs", ours: worst, bound: 20})
	return nil
}

// wall is the machine's clock for the memory provider.
type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func memoryRequest() sandbox.ProvisionRequest {
	image := "registry.example/base@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	return sandbox.ProvisionRequest{
		WorkspaceID: "bench", SessionID: "bench", RunID: "bench", AttemptID: "bench", LeaseID: "bench", LeaseEpoch: 1,
		Target: memory.DefaultTarget,
		Profile: sandbox.Profile{
			ProfileID: "bench", ProfileVersion: 1, Tier: sandbox.TierContainer, BaseImage: image, Packages: []sandbox.Package{},
			NetworkPolicy:  sandbox.NetworkPolicy{Mode: sandbox.NetworkNone},
			ResourceLimits: sandbox.Resources{CPUMillis: 1000, MemoryBytes: 1 << 30, DiskBytes: 64 << 20, MaxProcesses: 64, MaxDurationSeconds: 3600},
			RetentionMode:  sandbox.RetentionDurable,
		},
		Platform: sandbox.Platform{OS: "linux", Architecture: "amd64"}, RootImage: image,
		Mounts:    []sandbox.Mount{repoMount},
		ExpiresAt: later(),
	}
}

func later() sandbox.Timestamp { return sandbox.At(time.Now().Add(time.Hour)) }

// processID mints an id as the Runner does: never the same twice.
func processID() string { return fmt.Sprintf("pr_%032x", minted.Add(1)) }

var minted atomic.Int64

// clocks are the times of each member in microseconds, or what else a meter
// gives.
type clocks map[string]samples

// meter begins to measure; what it returns ends it.
type meter func() func() float64

func microseconds() func() float64 {
	begin := time.Now()
	return func() float64 { return float64(time.Since(begin)) / float64(time.Microsecond) }
}

// allocations counts what the whole process allocates meanwhile, which is the
// call's own where nothing else runs.
func allocations() func() float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	return func() float64 {
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs - before.Mallocs)
	}
}

func (c clocks) live(ctx context.Context, p sandbox.Provider, q sandbox.ProvisionRequest) error {
	return c.life(ctx, p, q, microseconds)
}

// life takes one instance through every member once.
func (c clocks) life(ctx context.Context, p sandbox.Provider, q sandbox.ProvisionRequest, by meter) error {
	var id sandbox.InstanceID
	var snapshot, clone sandbox.Snapshot
	var process sandbox.Process
	var write sandbox.ActiveWrite
	path, optional := repoPath+"/a", p.Optional()
	instance := func(h sandbox.Handoff[sandbox.Instance], err error) error {
		id = h.Value.InstanceID
		return err
	}
	members := []struct {
		name string
		do   func() error
	}{
		{"capabilities", func() error { _, err := p.Capabilities(ctx); return err }},
		{"provision", func() error { return instance(p.Provision(ctx, q)) }},
		{"writeFile", func() error {
			return p.WriteFile(ctx, id, sandbox.FileWrite{Path: path, Content: []byte("content")})
		}},
		{"activate", func() error { return instance(p.Activate(ctx, id)) }},
		{"execute", func() error { _, err := p.Execute(ctx, id, command("/bin/true")); return err }},
		{"readFile", func() error {
			_, err := p.ReadFile(ctx, id, sandbox.FileRead{Path: path, AllowedRoot: repoPath, MaximumBytes: 100})
			return err
		}},
		{"readFiles", func() error {
			_, err := optional.ReadFiles.ReadFiles(ctx, id, sandbox.FilesRead{AllowedRoot: repoPath, AggregateMaximumBytes: 100,
				Files: []sandbox.FileMember{{Path: path, MaximumBytes: 100}}})
			return err
		}},
		{"listDir", func() error {
			_, err := optional.ListDir.ListDir(ctx, id, sandbox.Listing{Root: repoPath, MaxEntries: 100})
			return err
		}},
		{"listProjectDir", func() error {
			_, err := optional.ListProjectDir.ListProjectDir(ctx, id, sandbox.Listing{Root: repoPath, MaxEntries: 100})
			return err
		}},
		{"beginActiveWrite", func() (err error) {
			write, err = optional.ActiveWrite.BeginActiveWrite(ctx, id, []string{path})
			return err
		}},
		{"abort", func() error { return write.Abort(ctx) }},
		{"openProcess", func() (err error) {
			process, err = optional.OpenProcess.OpenProcess(ctx, id, processID(), sandbox.ProcessRequest{
				Executable: "/bin/true", Arguments: []string{}, WorkingDirectory: "/", Environment: map[string]string{}})
			return err
		}},
		{"process.wait", func() error { _, err := process.Wait(ctx); return err }},
		{"process.destroy", func() error { return process.Destroy(ctx) }},
		{"snapshot", func() error {
			h, err := p.Snapshot(ctx, id, sandbox.SnapshotRequest{ExpiresAt: later()})
			snapshot = h.Value
			return err
		}},
		{"cloneSnapshot", func() error {
			h, err := p.CloneSnapshot(ctx, sandbox.CloneRequest{Snapshot: snapshot, TargetSessionID: "other"})
			clone = h.Value
			return err
		}},
		{"release", func() error {
			h, err := p.Release(ctx, id, sandbox.ReleaseRequest{ExpiresAt: later()})
			if err == nil {
				err = p.DestroySnapshot(ctx, h.Value.Snapshot.SnapshotID)
			}
			return err
		}},
		{"resume", func() error { return instance(p.Resume(ctx, sandbox.ResumeRequest{Request: q, Snapshot: snapshot})) }},
		{"destroy", func() error { return p.Destroy(ctx, id) }},
		{"destroySnapshot", func() error { return p.DestroySnapshot(ctx, snapshot.SnapshotID) }},
	}
	for _, m := range members {
		end := by()
		err := m.do()
		c[m.name] = append(c[m.name], end())
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return p.DestroySnapshot(ctx, clone.SnapshotID)
}
