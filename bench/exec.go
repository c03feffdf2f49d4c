package main

import (
	"context"
	"errors"
)

// execRunsc compares steady commands in one and the same sandbox.
func execRunsc(ctx context.Context, w *world) error {
	id, end, err := w.active(ctx, "runsc")
	if err != nil {
		return err
	}
	defer end()
	argv := w.rawRunsc("exec", "--user=10001:10001", "--cwd=/", string(id), "/bin/true")
	w.rep.command("runsc exec", argv)
	got, err := interleave(ctx, 3*w.n,
		timed(func(ctx context.Context) error { return w.run(ctx, "runsc", id, "/bin/true") }),
		timed(func(ctx context.Context) error { return shQuiet(ctx, argv...) }))
	reapOrphans()
	if err != nil {
		return err
	}
	w.rep.add(line{what: "runsc: execute", unit: "ms", ours: got[0], rawName: "runsc exec", raw: got[1], bound: 0.4})
	return nil
}

// execRunc compares steady commands in our machine and in a plain container of
// the same spec: runc would set up its exec behind a filter made for what we do.
func execRunc(ctx context.Context, w *world) error {
	id, end, err := w.active(ctx, "runc")
	if err != nil {
		return err
	}
	defer end()
	bundle, err := w.rawBundle("runc", id, "raw-exec", "/bin/sleep", "100000")
	if err != nil {
		return err
	}
	const name = "rawexec"
	if err := shQuiet(ctx, w.rawRunc("run", "--detach", "--bundle", bundle, name)...); err != nil {
		return err
	}
	argv := w.rawRunc("exec", name, "/bin/true")
	w.rep.command("runc exec", argv)
	got, err := interleave(ctx, 3*w.n,
		timed(func(ctx context.Context) error { return w.run(ctx, "runc", id, "/bin/true") }),
		timed(func(ctx context.Context) error { return shQuiet(ctx, argv...) }))
	err = errors.Join(err, shQuiet(context.WithoutCancel(ctx), w.rawRunc("delete", "--force", name)...))
	reapOrphans()
	if err != nil {
		return err
	}
	w.rep.add(line{what: "runc: execute", unit: "ms", ours: got[0], rawName: "runc exec", raw: got[1], bound: 0.4})
	return nil
}
