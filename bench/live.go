package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/guest"
	"github.com/checkfu/checkfu/internal/guest/initbin"
	"github.com/checkfu/checkfu/internal/provider/native"
	"github.com/checkfu/checkfu/internal/provider/native/gvisor"
	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// liveMemory is what the program that is written down holds: random bytes in the
// machine's own memory.
const liveMemory = 64 << 20

// holdMemory fills it, and waits for ever. The file is the sentry's memory.
const holdMemory = `head -c 67108864 /dev/urandom >/dev/shm/m; : >/dev/shm/ready; exec sleep 100000`

// heldMemory ends once it is filled.
const heldMemory = `until [ -e /dev/shm/ready ]; do usleep 10000; done`

// marks are when the provider took its steps last.
type marks map[string]time.Time

// live is a provider of machines that are kept with their processes, beside the
// others on the same driver's state.
func (w *world) live(ctx context.Context) (*native.Provider, marks, error) {
	init, err := initbin.Bytes()
	if err != nil {
		return nil, nil, err
	}
	driver, err := gvisor.New(gvisor.Options{Root: w.stateRoot("runsc"), CgroupParent: w.parent})
	if err != nil {
		return nil, nil, err
	}
	steps := marks{}
	p, err := native.New(native.Options{
		Dir: w.providerDir("live"), Driver: driver, Images: w.images, Init: init, Durable: true, Live: true,
		Step: func(step string) { steps[step] = time.Now() }, // one instance at a time
	})
	if err != nil {
		return nil, nil, err
	}
	return p, steps, p.Durable()
}

// liveState measures the driver's checkpoint and restore of 64 MiB beside the raw
// commands, and what a whole pause and a whole resumption take, which digest all of it,
// keep the files of the same moment, and force both to the disk.
func liveState(ctx context.Context, w *world) (err error) {
	p, steps, err := w.live(ctx)
	if err != nil {
		return err
	}
	lasting := context.WithoutCancel(ctx)
	r := w.kept("runsc")
	h, err := p.Provision(ctx, r)
	if err != nil {
		return err
	}
	id := h.Value.InstanceID
	defer func() { err = errors.Join(err, p.Destroy(lasting, id)) }()
	run := func(argv ...string) error {
		s, err := p.Execute(ctx, id, command(argv...))
		if err == nil && (s.Exit.ExitCode == nil || *s.Exit.ExitCode != 0) {
			err = fmt.Errorf("%q: %+v: %s", argv, s.Exit, s.Stderr)
		}
		return err
	}
	if _, err := p.Activate(ctx, id); err != nil {
		return err
	}
	if err := run(guest.DetachCommand(machine.InitPath, os.DevNull, []string{"/bin/sh", "-c", holdMemory})...); err != nil {
		return err
	}
	if err := run("/bin/sh", "-c", heldMemory); err != nil {
		return err
	}

	var restores, raws, pauses, resumes samples
	var last *sandbox.Snapshot
	defer func() {
		if last != nil {
			err = errors.Join(err, p.DestroySnapshot(lasting, last.SnapshotID))
		}
	}()
	ours := func(ctx context.Context) (time.Duration, error) {
		// A session lives longer than this: its home is on the disk by the time it is
		// paused, and not still on its way there from the resumption.
		if err := syncHome(filepath.Join(w.providerDir("live"), "instances", string(id))); err != nil {
			return 0, err
		}
		begin := time.Now()
		ended, err := p.ReleaseLive(ctx, id, sandbox.ReleaseRequest{ExpiresAt: sandbox.At(time.Now().Add(time.Hour))})
		if err != nil {
			return 0, err
		}
		pauses = append(pauses, millis(time.Since(begin)))
		took := steps["checkpoint"].Sub(steps["checkpoint begun"])
		before := last
		if last = ended.Value.Snapshot; before != nil {
			if err := p.DestroySnapshot(ctx, before.SnapshotID); err != nil {
				return 0, err
			}
		}
		begin = time.Now()
		back, err := p.Resume(ctx, sandbox.ResumeRequest{Request: r, Snapshot: *last})
		if err != nil {
			return 0, err
		}
		id = back.Value.InstanceID
		if err := run("/bin/true"); err != nil {
			return 0, err
		}
		resumes = append(resumes, millis(time.Since(begin)))
		restores = append(restores, millis(steps["started"].Sub(steps["restore: live verified"])))
		return took, nil
	}
	raw, end, err := w.rawLive(ctx, &raws)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	got, err := interleave(ctx, min(w.n, 12), ours, raw)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("runsc: live %%s of %d MiB", liveMemory>>20)
	w.rep.add(
		line{what: fmt.Sprintf(what, "checkpoint"), unit: "ms", ours: got[0], rawName: "runsc checkpoint", raw: got[1], bound: 1.3},
		line{what: fmt.Sprintf(what, "restore"), unit: "ms", ours: restores, rawName: "runsc restore", raw: raws, bound: 1.3},
		line{what: fmt.Sprintf(what, "pause") + ", whole", unit: "ms", ours: pauses, rawName: "runsc checkpoint", raw: got[1]},
		line{what: fmt.Sprintf(what, "resume") + " → first execute", unit: "ms", ours: resumes, rawName: "runsc restore", raw: raws},
	)
	return nil
}

// syncHome forces the filesystem of an instance's home to its image, and that to the
// disk.
func syncHome(instance string) error {
	home, err := os.Open(filepath.Join(instance, "home"))
	if err != nil {
		return err
	}
	err = errors.Join(unix.Syncfs(int(home.Fd())), home.Close())
	image, openErr := os.Open(filepath.Join(instance, "home.image"))
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return errors.Join(err, image.Sync(), image.Close())
}

// rawLive is a container with the same program: each round writes it down, and makes
// the next one out of that.
func (w *world) rawLive(ctx context.Context, restores *samples) (side, func() error, error) {
	p := w.providers["runsc"]
	h, err := p.Provision(ctx, w.kept("runsc")) // the same kind of home
	if err != nil {
		return nil, nil, err
	}
	like := h.Value.InstanceID
	endLike := func() error { return p.Destroy(context.WithoutCancel(ctx), like) }
	if _, err := p.Activate(ctx, like); err != nil {
		return nil, nil, errors.Join(err, endLike())
	}
	n := 0
	name := func() string { return fmt.Sprintf("rawlive%025d", n) }
	remove := func() error {
		return shQuiet(context.WithoutCancel(ctx), w.rawRunsc("delete", "--force", name())...)
	}
	end := func() error { return errors.Join(remove(), endLike()) }
	bundle, err := w.rawBundle("runsc", like, "raw-live", "/bin/sh", "-c", holdMemory)
	if err == nil {
		err = shQuiet(ctx, w.rawRunsc("run", "--detach", "--bundle="+bundle, name())...)
	}
	if err == nil {
		err = shQuiet(ctx, w.rawRunsc("exec", "--user=10001:10001", "--cwd=/", name(), "/bin/sh", "-c", heldMemory)...)
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	image := filepath.Join(w.dir, "raw-live-image")
	checkpoint := func() []string {
		return w.rawRunsc("checkpoint", "--leave-running", "--compression=none", "--image-path="+image, name())
	}
	restore := func() []string {
		return w.rawRunsc("restore", "--detach", "--bundle="+bundle, "--image-path="+image, name())
	}
	w.rep.command("runsc checkpoint", checkpoint())
	w.rep.command("runsc restore", restore())
	return func(ctx context.Context) (time.Duration, error) {
		if err := errors.Join(os.RemoveAll(image), os.Mkdir(image, 0o700)); err != nil {
			return 0, err
		}
		if err := syncHome(filepath.Join(w.providerDir("runsc"), "instances", string(like))); err != nil { // as ours does
			return 0, err
		}
		begin := time.Now()
		if err := shQuiet(ctx, checkpoint()...); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		if err := remove(); err != nil {
			return 0, err
		}
		n++
		begin = time.Now()
		if err := shQuiet(ctx, restore()...); err != nil {
			return 0, err
		}
		*restores = append(*restores, millis(time.Since(begin)))
		reapOrphans()
		return took, nil
	}, end, nil
}
