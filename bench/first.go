package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fresh is provision, activate and the first execute of an instance. The end
// of the instance is not on the clock; whole counts it, too.
func (w *world) fresh(driver string, whole bool) side {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		id, end, err := w.active(ctx, driver)
		if err != nil {
			return 0, err
		}
		err = w.run(ctx, driver, id, "/bin/true")
		took := time.Since(begin)
		err = errors.Join(err, end())
		if whole {
			took = time.Since(begin)
		}
		return took, err
	}
}

// rawRun runs argv once with a container id of its own at the end.
func (w *world) rawRun(argv []string) side {
	n := 0
	run := timed(func(ctx context.Context) error {
		n++
		return shQuiet(ctx, append(argv[:len(argv):len(argv)], fmt.Sprintf("raw%029d", n))...)
	})
	return func(ctx context.Context) (time.Duration, error) {
		took, err := run(ctx)
		reapOrphans()
		return took, err
	}
}

func firstRunsc(ctx context.Context, w *world) error {
	id, end, err := w.active(ctx, "runsc")
	if err != nil {
		return err
	}
	defer end()
	if err := w.checkFlags(id); err != nil {
		return err
	}
	bundle, err := w.rawBundle("runsc", id, "raw-runsc", "/bin/true")
	if err != nil {
		return err
	}
	argv := w.rawRunsc("run", "--bundle="+bundle)
	w.rep.command("runsc run", append(argv, "ID"))
	got, err := interleave(ctx, w.n, w.fresh("runsc", false), w.rawRun(argv), w.fresh("runsc", true))
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: "runsc: provision → activate → first execute", unit: "ms", ours: got[0], rawName: "runsc run", raw: got[1], bound: 0.9},
		line{what: "runsc: the same and destroy", unit: "ms", ours: got[2], rawName: "runsc run", raw: got[1]},
	)
	return nil
}

func firstRunc(ctx context.Context, w *world) error {
	id, end, err := w.active(ctx, "runc")
	if err != nil {
		return err
	}
	defer end()
	bundle, err := w.rawBundle("runc", id, "raw-runc", "/bin/true")
	if err != nil {
		return err
	}
	argv := w.rawRunc("run", "--bundle", bundle)
	w.rep.command("runc run", append(argv, "ID"))
	sides := []side{w.fresh("runc", false), w.rawRun(argv), w.fresh("runc", true)}
	docker, dockerErr := startDocker(ctx, w)
	if dockerErr == nil {
		defer func() {
			if err := docker.close(); err != nil {
				w.rep.note("docker: %v", err)
			}
		}()
		argv := docker.run("/bin/true")
		w.rep.command("docker run", argv)
		sides = append(sides, timed(func(ctx context.Context) error { return sh(ctx, argv...) }))
	} else {
		w.rep.note("docker run is not in the table: %v", dockerErr)
	}
	got, err := interleave(ctx, w.n, sides...)
	if err != nil {
		return err
	}
	w.rep.add(
		line{what: "runc: provision → activate → first execute", unit: "ms", ours: got[0], rawName: "runc run", raw: got[1], bound: 1.5},
		line{what: "runc: the same and destroy", unit: "ms", ours: got[2], rawName: "runc run", raw: got[1]},
	)
	if dockerErr == nil {
		w.rep.add(line{what: "runc: provision → activate → first execute", unit: "ms", ours: got[0], rawName: "docker run", raw: got[3], bound: 0.5})
	}
	return nil
}
