package sandboxruntime_test

import (
	"context"
	"testing"

	"github.com/checkfu/checkfu/internal/sandboxruntime"
	"github.com/checkfu/checkfu/sandbox"
)

// BenchmarkCall compares each call bare and through the runtime, over the same
// trivial provider: the difference is what disbelief costs.
func BenchmarkCall(b *testing.B) {
	ctx := context.Background()
	f := newFake(sandboxruntime.System)
	q := request(f, durable)
	q.ExpiresAt = "9999-01-01T00:00:00.000Z"
	r, err := sandboxruntime.Select(ctx, []sandboxruntime.Adapter{{Provider: f}}, wanted(f))
	if err != nil {
		b.Fatal(err)
	}
	i, err := r.Provision(ctx, q)
	if err != nil {
		b.Fatal(err)
	}
	id := i.InstanceID
	if err := r.WriteFile(ctx, id, sandbox.FileWrite{Path: repo + "/a", Content: []byte("a")}); err != nil {
		b.Fatal(err)
	}
	if _, err := r.Activate(ctx, id); err != nil {
		b.Fatal(err)
	}
	read := sandbox.FileRead{Path: repo + "/a", AllowedRoot: repo, MaximumBytes: 10}
	life := func(p sandbox.Provider) func() error {
		return func() error {
			h, err := p.Provision(ctx, q)
			if err == nil {
				_, err = p.Activate(ctx, h.Value.InstanceID)
			}
			if err == nil {
				err = p.Destroy(ctx, h.Value.InstanceID)
			}
			return err
		}
	}
	for _, c := range []struct {
		name          string
		bare, through func() error
	}{
		{"execute", func() error { _, err := f.Execute(ctx, id, command); return err }, func() error { _, err := r.Execute(ctx, id, command); return err }},
		{"readFile", func() error { _, err := f.ReadFile(ctx, id, read); return err }, func() error { _, err := r.ReadFile(ctx, id, read.Path, 10); return err }},
		{"provision+activate+destroy", life(f), life(r.Provider())},
	} {
		for name, fn := range map[string]func() error{"bare": c.bare, "runtime": c.through} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := fn(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
