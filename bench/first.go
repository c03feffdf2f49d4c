package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native"
)

// phases are the parts of an instance's life, in the order of its life.
type phases struct{ provision, activate, execute, destroy samples }

// fresh is provision, activate and the first execute of an instance. The end
// of the instance is not on the clock; whole counts it, too.
func (w *world) fresh(driver string, whole bool, parts *phases) side {
	return w.freshOf(w.providers[driver], driver, whole, parts)
}

// freshOf is fresh of an instance of p.
func (w *world) freshOf(p *native.Provider, driver string, whole bool, parts *phases) side {
	return func(ctx context.Context) (time.Duration, error) {
		var marks [5]time.Time
		marks[0] = time.Now()
		h, err := p.Provision(ctx, w.request(driver))
		if err != nil {
			return 0, err
		}
		id := h.Value.InstanceID
		marks[1] = time.Now()
		_, err = p.Activate(ctx, id)
		marks[2] = time.Now()
		if err == nil {
			err = runOf(ctx, p, id, "/bin/true")
		}
		marks[3] = time.Now()
		err = errors.Join(err, p.Destroy(context.WithoutCancel(ctx), id))
		marks[4] = time.Now()
		for i, part := range []*samples{&parts.provision, &parts.activate, &parts.execute, &parts.destroy} {
			*part = append(*part, millis(marks[i+1].Sub(marks[i])))
		}
		if whole {
			return marks[4].Sub(marks[0]), err
		}
		return marks[3].Sub(marks[0]), err
	}
}

func (p phases) String() string {
	text := make([]string, 0, 4)
	for _, part := range []struct {
		name string
		took samples
	}{{"provision", p.provision}, {"activate", p.activate}, {"execute", p.execute}, {"destroy", p.destroy}} {
		text = append(text, fmt.Sprintf("%s %.1f (%.1f)", part.name, part.took.median(), part.took.min()))
	}
	return strings.Join(text, ", ")
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
	var parts phases
	got, err := interleave(ctx, w.n, w.fresh("runsc", false, &parts), w.rawRun(argv), w.fresh("runsc", true, &parts))
	if err != nil {
		return err
	}
	w.rep.note("runsc, ms: %s", parts)
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
	var parts phases
	sides := []side{w.fresh("runc", false, &parts), w.rawRun(argv), w.fresh("runc", true, &parts)}
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
	w.rep.note("runc, ms: %s", parts)
	w.rep.add(
		line{what: "runc: provision → activate → first execute", unit: "ms", ours: got[0], rawName: "runc run", raw: got[1], bound: 1.5},
		line{what: "runc: the same and destroy", unit: "ms", ours: got[2], rawName: "runc run", raw: got[1]},
	)
	if dockerErr == nil {
		w.rep.add(line{what: "runc: provision → activate → first execute", unit: "ms", ours: got[0], rawName: "docker run", raw: got[3], bound: 0.5})
	}
	return nil
}
