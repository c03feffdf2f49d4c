package sandboxtest

import (
	"context"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// timeFaults are right in all but the time of day: a clock in another zone, or
// what was noted of something that was there before.
func timeFaults() []Saboteur {
	const zone = 2 * time.Hour
	return []Saboteur{
		{ID: "X30", Fault: "a command began and ended in another zone", Kills: "execute.times/started", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.StartedAt, s.FinishedAt = later(s.StartedAt, zone), later(s.FinishedAt, zone)
			return true
		})},
		{ID: "X31", Fault: "a command began an hour before it was asked for", Kills: "execute.times/started", Wrap: settling(func(_ *sandbox.Command, s *sandbox.Settlement) bool {
			s.StartedAt = later(s.StartedAt, -time.Hour)
			return true
		})},
		{ID: "N31", Fault: "a snapshot was taken in another zone", Kills: "snapshot.time/created",
			Wrap: misreference(ofSnapshot, func(told *sandbox.Snapshot, _ sandbox.Snapshot) { told.CreatedAt = later(told.CreatedAt, -zone) })},
		live("P70", "evidence: the times of a former process", "process.evidence-time/started", func(a *altered, env *Env) {
			e := a.Process.Evidence()
			e.StartedAt, e.ObservedAt = later(e.StartedAt, -time.Hour), later(e.ObservedAt, -time.Hour)
			a.evidence = &e
			env.Fire()
		}),
		{ID: "N32", Fault: "a resumed instance has the deadline of its first", Kills: "snapshot.own-deadline/works", Wrap: resumesUntilThen},
	}
}

// resumesUntilThen forgets resumed instances once the one that was captured
// would have expired.
func resumesUntilThen(p sandbox.Provider, env *Env) sandbox.Provider {
	o, asks := remembering(p)
	resume := o.ResumeFunc
	o.ResumeFunc = func(ctx context.Context, q sandbox.ResumeRequest) (sandbox.Handoff[sandbox.Instance], error) {
		h, err := resume(ctx, q)
		if first, known := asks.get(q.Snapshot.SourceInstanceID); err == nil && known {
			asks.put(h.Value.InstanceID, first)
		}
		return h, err
	}
	o.ExecuteFunc = func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		s, err := p.Execute(ctx, id, c)
		if q, known := asks.get(id); err == nil && known && q.ExpiresAt.Before(sandbox.At(env.Now())) {
			env.Fire()
			return sandbox.Settlement{}, sandbox.NoInstance(sandbox.OpExecute, id)
		}
		return s, err
	}
	return o
}
