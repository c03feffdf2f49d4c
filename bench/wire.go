package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/mount"
	"github.com/checkfu/checkfu/internal/provider/memory"
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
	"github.com/checkfu/checkfu/wire/client"
	"github.com/checkfu/checkfu/wire/server"
	"github.com/checkfu/checkfu/wire/server/logstore"
)

// wired is one provider twice: bare, and behind a server on loopback.
type wired struct {
	name   string // of the provider
	bare   sandbox.Provider
	over   *client.Client
	q      sandbox.ProvisionRequest
	base   string // where the server listens
	ended  chan error
	cancel context.CancelFunc
}

// benchToken is a bearer token, which everybody who is not the bench's own
// process tree is kept out by.
const benchToken = "bench.bench.bench.bench.bench.bench.bench"

// wire puts p behind a server on loopback, over HTTP/1.1. Its journal lies in
// dir, or in memory where that is "".
func (w *world) wire(ctx context.Context, name string, p sandbox.Provider, q sandbox.ProvisionRequest, dir string) (*wired, error) {
	// The largest window: nothing holds a process back, so one that writes
	// faster than it is read must not be overtaken within one burst.
	s, err := server.New(server.Options{Provider: p, Tokens: []string{benchToken}, Journal: logstore.At(dir), OutputWindow: wire.MaxOutputWindowBytes})
	if err != nil {
		return nil, err
	}
	l, err := server.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	x := &wired{name: name, bare: p, q: q, base: "http://" + l.Addr().String(), ended: make(chan error, 1)}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	x.cancel = cancel
	go func() { x.ended <- server.Serve(serving, l, s, nil) }()
	if x.over, err = client.Dial(ctx, client.Options{Base: x.base, Token: benchToken}); err != nil {
		x.cancel()
		return nil, errors.Join(err, <-x.ended)
	}
	return x, nil
}

// wireMemory is the memory provider, whose journal may lie in memory too.
func (w *world) wireMemory(ctx context.Context, programs map[string]memory.Program) (*wired, error) {
	p := memory.New(memory.Options{Seed: "wire", Clock: wall{}, Programs: programs})
	return w.wire(ctx, "memory", p, memoryRequest(), "")
}

// wireNative is the native provider with runc, whose instances outlive a
// server: so must the journal.
func (w *world) wireNative(ctx context.Context) (*wired, error) {
	dir := filepath.Join(w.dir, fmt.Sprintf("journal-%d", minted.Add(1)))
	return w.wire(ctx, "runc", w.providers["runc"], w.request("runc", repoMount), dir)
}

func (x *wired) close() error {
	err := x.over.Close()
	x.cancel()
	return errors.Join(err, <-x.ended)
}

// instance is an instance of p that holds files, running where active says so;
// end destroys it.
func (x *wired) instance(ctx context.Context, p sandbox.Provider, files map[string][]byte, active bool) (id sandbox.InstanceID, end func() error, err error) {
	h, err := p.Provision(ctx, x.q)
	if err != nil {
		return "", nil, err
	}
	id = h.Value.InstanceID
	end = func() error { return p.Destroy(context.WithoutCancel(ctx), id) }
	for name, content := range files {
		if err == nil {
			err = p.WriteFile(ctx, id, sandbox.FileWrite{Path: repoPath + "/" + name, Content: content})
		}
	}
	if err == nil && active {
		_, err = p.Activate(ctx, id)
	}
	if err != nil {
		return "", nil, errors.Join(err, end())
	}
	return id, end, nil
}

// both are the two ways to the provider.
func (x *wired) both() [2]sandbox.Provider { return [2]sandbox.Provider{x.over, x.bare} }

// smallCalls are calls whose own work is as small as it gets, one that only
// reads and one that is a record in the journal.
var smallCalls = []struct {
	name string
	do   func(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID) error
}{
	{"readFile of 7 bytes", func(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID) error {
		_, err := p.ReadFile(ctx, id, sandbox.FileRead{Path: repoPath + "/a", AllowedRoot: repoPath, MaximumBytes: 100})
		return err
	}},
	{"writeFile of 7 bytes", func(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID) error {
		return p.WriteFile(ctx, id, sandbox.FileWrite{Path: repoPath + "/a", Content: []byte("content")})
	}},
	{"execute of true", func(ctx context.Context, p sandbox.Provider, id sandbox.InstanceID) error {
		_, err := p.Execute(ctx, id, command("/bin/true"))
		return err
	}},
}

// wireCall is what the wire itself adds to a small call.
func wireCall(ctx context.Context, w *world) error {
	for _, make := range []func(context.Context) (*wired, error){
		func(ctx context.Context) (*wired, error) { return w.wireMemory(ctx, nil) },
		w.wireNative,
	} {
		x, err := make(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(x.calls(ctx, w), x.close()); err != nil {
			return err
		}
	}
	return nil
}

func (x *wired) calls(ctx context.Context, w *world) error {
	disk, err := os.Create(filepath.Join(w.dir, "synced"))
	if err != nil {
		return err
	}
	defer func() {
		disk.Close()
		os.Remove(disk.Name())
	}()
	page := make([]byte, 4096)
	synced := timed(func(context.Context) error {
		if _, err := disk.WriteAt(page, 0); err != nil {
			return err
		}
		return unix.Fdatasync(int(disk.Fd()))
	})
	for _, c := range smallCalls {
		var sides []side
		var ends []func() error
		// The native provider stages before its start only.
		active := c.name != "writeFile of 7 bytes"
		for _, p := range x.both() {
			id, end, err := x.instance(ctx, p, map[string][]byte{"a": []byte("content")}, active)
			if err != nil {
				return err
			}
			ends = append(ends, end)
			sides = append(sides, timed(func(ctx context.Context) error { return c.do(ctx, p, id) }))
		}
		journal := "its journal in memory"
		if x.name != "memory" {
			sides = append(sides, synced)
		}
		got, err := interleave(ctx, 25*w.n, sides...)
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if len(got) > 2 {
			journal = fmt.Sprintf("its journal on disk, where one fdatasync takes %.3f ms", got[2].median())
		}
		w.rep.add(line{what: "wire: what it adds to " + c.name + ", " + x.name, unit: "ms", bound: 0.3,
			ours: samples{got[0].median() - got[1].median()},
			note: fmt.Sprintf("%s; through it %.3f ms, bare %.3f", journal, got[0].median(), got[1].median())})
	}
	return nil
}

// wireStage stages 10,000 files as the Runner does, a plan with its digests
// first, through the wire and without one; and once more the writes alone.
func wireStage(ctx context.Context, w *world) error {
	source := filepath.Join(w.dir, "many")
	if _, err := manyFiles(source); err != nil {
		return err
	}
	defer os.RemoveAll(source)
	for _, make := range []func(context.Context) (*wired, error){
		w.wireNative,
		func(ctx context.Context) (*wired, error) { return w.wireMemory(ctx, nil) },
	} {
		x, err := make(ctx)
		if err != nil {
			return err
		}
		got, err := interleave(ctx, min(w.n, 8), x.stage(x.over, source), x.stage(x.bare, source), x.write(x.over), x.write(x.bare))
		if err = errors.Join(err, x.close()); err != nil {
			return err
		}
		l := line{what: "wire: stage 10,000 files of 4 KiB as the Runner does, " + x.name, unit: "ms", ours: got[0], rawName: "in-process", raw: got[1]}
		if x.name != "memory" {
			l.bound = 3
		}
		w.rep.add(l, line{what: "wire: the writeFile alone of these, " + x.name, unit: "ms", ours: got[2], rawName: "in-process", raw: got[3]})
	}
	return nil
}

// staging runs stage on an instance of its own, which is not on the clock.
func (x *wired) staging(p sandbox.Provider, stage func(ctx context.Context, id sandbox.InstanceID) error) side {
	return func(ctx context.Context) (time.Duration, error) {
		id, end, err := x.instance(ctx, p, nil, false)
		if err != nil {
			return 0, err
		}
		took, err := timed(func(ctx context.Context) error { return stage(ctx, id) })(ctx)
		return took, errors.Join(err, end())
	}
}

func (x *wired) stage(p sandbox.Provider, source string) side {
	return x.staging(p, func(ctx context.Context, id sandbox.InstanceID) error {
		plan, err := mount.Directory(ctx, mount.DirOptions{Dir: source})
		if err != nil {
			return err
		}
		err = writeAll(ctx, p, id, len(plan.Files), func(i int) (string, []byte, error) {
			content, err := plan.Files[i].Bytes()
			return plan.Files[i].Path, content, err
		})
		return errors.Join(err, plan.Close())
	})
}

func (x *wired) write(p sandbox.Provider) side {
	content := make([]byte, bytesPerFile)
	return x.staging(p, func(ctx context.Context, id sandbox.InstanceID) error {
		return writeAll(ctx, p, id, manyDirs*filesPerDir, func(i int) (string, []byte, error) {
			return fmt.Sprintf("dir%02d/file%02d", i/filesPerDir, i%filesPerDir), content, nil
		})
	})
}
