package sandboxtest

import (
	"github.com/checkfu/checkfu/wire"
)

// wireWindowFaults are wrong in what is kept of the output.
func wireWindowFaults() []Saboteur {
	return []Saboteur{
		attaching("Y120", "a cursor beyond the end is the end", "ahead/refused", func(c *liveCall, p *lived) bool {
			if p.sent > 0 && c.stream.Cursor == p.sent+1 {
				c.env.Fire()
				c.stream.Cursor = p.sent
				c.rewrite()
			}
			return true
		}),
		immortal("Y121", "a process survives a cursor beyond its end", "ahead/killed", func(c *liveCall, p *lived) bool {
			return p.sent > 0 && c.stream.Cursor == p.sent+1
		}),
		attaching("Y122", "the low-water mark itself is refused", "low-water/at", func(c *liveCall, p *lived) bool {
			if p.low == 0 || c.stream.Cursor != p.low {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagOutputTruncated, LowWater: p.low + 1})
			return false
		}),
		attaching("P26", "a cursor below the low-water mark is served", "low-water/refused", func(c *liveCall, p *lived) bool {
			if c.stream.Cursor >= p.low {
				return true
			}
			c.env.Fire()
			c.pretend(outFrame(c.stream.Cursor, "?"))
			return false
		}),
		attaching("Y123", "what was truncated is served to the next who asks", "low-water/again", func(c *liveCall, p *lived) bool {
			if !p.refused {
				return true
			}
			c.env.Fire()
			c.pretend()
			return false
		}),
		immortal("Y124", "a process survives that its output was truncated", "low-water/killed", func(c *liveCall, p *lived) bool {
			return c.stream.Cursor < p.low
		}),
		streaming("P25", "a gap is served instead of output_truncated", "overrun/no-hole", func(*liveCall, *lived) bool { return true },
			ofType(wire.TypeTruncated, func(_ *liveCall, f wire.Frame) ([]wire.Frame, bool) {
				t, err := wire.Decode[wire.Truncated](f.Payload)
				return []wire.Frame{outFrame(t.LowWater, "?")}, err != nil
			})),
		unreaped("Y125", "a process is not killed while its reader stands still", "overrun/killed", func(p *lived) bool { return p.exit.Signal != "" }),
		unreaped("Y126", "an exit has to wait until its output was read", "stalled/exits", func(p *lived) bool { return p.exit.ExitCode != nil && p.sent > 1<<17 }),
		streaming("Y127", "standard error takes the place of output", "stderr", func(*liveCall, *lived) bool { return true },
			ofType(wire.TypeErr, func(c *liveCall, f wire.Frame) ([]wire.Frame, bool) {
				if offset, _, err := f.Output(); err != nil || offset < 1<<20 {
					return pass(f)
				}
				return []wire.Frame{jsonFrame(wire.TypeTruncated, wire.Truncated{LowWater: 1})}, false
			})),
	}
}

// immortal refuses what is wrong with a cursor, and does nothing to the process.
func immortal(id, fault, kills string, wrong func(c *liveCall, p *lived) bool) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: "wire.stream." + kills, Serve: living(func(c *liveCall) bool {
		p := c.process
		switch {
		case c.endpoint == wire.ProcessStream && (p.doomed || wrong(c, p)):
			p.doomed = true
			if c.stream.Cursor > p.sent {
				c.refuse(&wire.Error{Tag: wire.TagCursorAhead, End: p.sent})
			} else {
				c.refuse(&wire.Error{Tag: wire.TagOutputTruncated, LowWater: p.low})
			}
			return false
		case c.endpoint == wire.ProcessWait && p.doomed:
			c.env.Fire()
			c.answer(wire.Waited{Running: true})
			return false
		}
		return true
	})}
}

// unreaped says that a process runs while somebody has not read all of it.
func unreaped(id, fault, kills string, which func(p *lived) bool) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: "wire.stream." + kills, Serve: living(func(c *liveCall) bool {
		if c.endpoint == wire.ProcessWait {
			c.after = func(a *reply) {
				if p := c.process; p.unread && p.exit != nil && which(p) {
					c.env.Fire()
					a.become(wire.Waited{Running: true})
				}
			}
		}
		return true
	})}
}
