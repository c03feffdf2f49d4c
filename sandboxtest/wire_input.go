package sandboxtest

import (
	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// feeding is a saboteur of one rule about input.
func feeding(id, fault, kills string, rule func(c *liveCall, p *lived) bool) Saboteur {
	return at(wire.ProcessInput, id, fault, "input."+kills, rule)
}

// at is a saboteur of one rule about one endpoint.
func at(e wire.Endpoint, id, fault, kills string, rule func(c *liveCall, p *lived) bool) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: "wire." + kills, Serve: living(func(c *liveCall) bool {
		return c.endpoint != e || rule(c, c.process)
	})}
}

// last is where the input of a call ends.
func (c *liveCall) last() int64 { return c.input.Offset + int64(len(c.data)) }

// wireInputFaults are wrong in what a live process is sent, and in how it is
// held.
func wireInputFaults() []Saboteur {
	return []Saboteur{
		feeding("Y130", "input that comes again is input", "again/once", func(c *liveCall, p *lived) bool {
			if len(c.data) > 0 && c.last() == p.taken && !p.ended {
				c.env.Fire()
				c.input.Offset = p.taken
				c.rewrite()
			}
			return true
		}),
		feeding("Y131", "input that overlaps is taken whole", "overlap/tail", func(c *liveCall, p *lived) bool {
			if c.input.Offset < p.taken && c.last() > p.taken {
				c.env.Fire()
				c.input.Offset = p.taken
				c.rewrite()
			}
			return true
		}),
		feeding("Y132", "input that overlaps is beyond a gap", "overlap/taken", func(c *liveCall, p *lived) bool {
			if c.input.Offset >= p.taken || c.last() <= p.taken {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagInputGap, InputOffset: p.taken, InputCredit: p.credit})
			return false
		}),
		feeding("Y133", "a gap in the input is closed", "gap/refused", func(c *liveCall, p *lived) bool {
			if p.inputs > 0 && c.input.Offset > p.taken {
				c.env.Fire()
				c.input.Offset = p.taken
				c.rewrite()
			}
			return true
		}),
		feeding("Y134", "the limit of input shrinks", "credit/kept", func(c *liveCall, p *lived) bool {
			if p.inputs < 5 || c.last() > 1<<10 {
				return true
			}
			c.after = func(a *reply) {
				if w, err := wire.Decode[wire.Window](a.body.Bytes()); err == nil {
					c.env.Fire()
					w.InputCredit /= 2
					a.become(w)
				}
			}
			return true
		}),
		feeding("P17", "an overrun of the credit window is accepted", "full/refused", func(c *liveCall, _ *lived) bool {
			c.after = func(a *reply) {
				if a.status == 429 {
					c.env.Fire()
					a.become(wire.Window{InputOffset: c.last()})
				}
			}
			return true
		}),
		feeding("Y135", "of an overrun some is taken", "full/none", func(c *liveCall, _ *lived) bool {
			c.after = func(a *reply) {
				failure, err := wire.DecodeError(a.body.Bytes())
				if e, ok := failure.(*wire.Error); err == nil && ok && e.Tag == wire.TagInputBufferFull {
					c.env.Fire()
					e.InputOffset, e.InputCredit = e.InputOffset+max(e.InputCredit, 1), 0
					a.refuse(e)
				}
			}
			return true
		}),
		{ID: "P18", Fault: "the credit window is never refilled", Kills: "wire.input.full/refilled", Serve: living(func(c *liveCall) bool {
			if c.endpoint == wire.ProcessStream {
				c.frame = ofType(wire.TypeWindow, dropped)(c)
			}
			return true
		})},
		feeding("Y136", "the half-close needs credit", "full/free-end", func(c *liveCall, p *lived) bool {
			if !c.input.End || len(c.data) > 0 || p.credit > 0 || p.inputs == 0 {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagInputBufferFull, InputOffset: p.taken, InputCredit: p.credit})
			return false
		}),
		feeding("Y137", "the half-close overtakes the bytes before it", "end/goes-on", func(c *liveCall, _ *lived) bool {
			if !c.input.End || len(c.data) < 1000 {
				return true
			}
			c.env.Fire()
			last := c.last()
			c.data = nil
			c.rewrite()
			c.after = func(a *reply) {
				if w, err := wire.Decode[wire.Window](a.body.Bytes()); err == nil {
					a.become(wire.Window{InputOffset: last, InputCredit: w.InputCredit})
				}
			}
			return true
		}),
		{ID: "Y138", Fault: "no signal is passed on after the half-close", Kills: "wire.input.end/signal", Serve: living(func(c *liveCall) bool {
			p := c.process
			switch {
			case c.endpoint == wire.ProcessSignal && p.ended && p.exit == nil:
				c.env.Fire()
				p.doomed = true
				c.answer(wire.Signaled{Delivered: true})
				return false
			case c.endpoint == wire.ProcessWait && p.doomed:
				c.answer(wire.Waited{Running: true})
				return false
			}
			return true
		})},
		feeding("Y139", "a second half-close is an error", "end-again/again", func(c *liveCall, p *lived) bool {
			if !p.ended || !c.input.End || len(c.data) > 0 {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagInputClosed, InputOffset: p.taken, InputCredit: p.credit, Cause: wire.CauseEnded})
			return false
		}),
		feeding("Y140", "input behind the half-close is forgotten", "end-again/closed", func(c *liveCall, p *lived) bool {
			if !p.ended || c.last() <= p.taken {
				return true
			}
			c.env.Fire()
			c.answer(wire.Window{InputOffset: c.last(), InputCredit: p.credit})
			return false
		}),
		feeding("Y141", "input to a process that has exited is forgotten", "closed/exited", func(c *liveCall, p *lived) bool {
			if p.exit == nil || p.gone {
				return true
			}
			c.env.Fire()
			c.answer(wire.Window{InputOffset: c.last(), InputCredit: 1})
			return false
		}),
		feeding("Y142", "a process that closed its input has exited", "closed/guest-cause", func(c *liveCall, _ *lived) bool {
			c.after = func(a *reply) {
				if a.status == 409 && a.instead(`"`+wire.CauseGuestClosed+`"`, `"`+wire.CauseExited+`"`) {
					c.env.Fire()
				}
			}
			return true
		}),
		roomForMany(),
		at(wire.ProcessDestroy, "Y151", "that a process was destroyed before it was opened is forgotten", "process.tombstone/refused", func(c *liveCall, p *lived) bool {
			if !p.opened { // another is destroyed instead
				c.env.Fire()
				setBody(c.r, processID.ReplaceAll(bodyOf(c.r), []byte(`"process_id":"`+string(wire.NewProcessID())+`"`)))
			}
			return true
		}),
		at(wire.ProcessSignal, "Y152", "every delivery of a signal is a signal", "process.signal/once", func(c *liveCall, _ *lived) bool {
			c.env.Fire()
			c.r.Header.Set(wire.HeaderOperationID, string(wire.NewOperationID()))
			return true
		}),
		at(wire.ProcessSignal, "Y153", "a signal after the exit is said to have arrived", "process.signal/late", func(c *liveCall, p *lived) bool {
			if p.exit != nil {
				c.after = func(a *reply) { c.env.Fire(); a.become(wire.Signaled{Delivered: true}) }
			}
			return true
		}),
		at(wire.ProcessWait, "Y154", "an exit can be waited for once", "process.wait/again", func(c *liveCall, p *lived) bool {
			if p.exit == nil || c.wait.WaitMS != wire.DefaultWaitMS {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagProcessNotFound})
			return false
		}),
		at(wire.ProcessWait, "Y155", "what was destroyed is not found", "process.wait/destroyed", func(c *liveCall, p *lived) bool {
			if !p.gone || c.wait.WaitMS != wire.DefaultWaitMS {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagProcessNotFound})
			return false
		}),
		at(wire.ProcessWait, "Y156", "a wait that is over is an exit", "process.wait/running", func(c *liveCall, _ *lived) bool {
			c.after = func(a *reply) {
				w, err := wire.Decode[wire.Waited](a.body.Bytes())
				if err == nil && w.Running && c.wait.WaitMS == 0 {
					c.env.Fire()
					exit := sandbox.Exited(0)
					a.become(wire.Waited{Exit: &exit})
				}
			}
			return true
		}),
		at(wire.ProcessDestroy, "Y157", "what was destroyed cannot be destroyed again", "process.destroy/again", func(c *liveCall, p *lived) bool {
			if !p.gone || !p.opened {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagProcessNotFound})
			return false
		}),
	}
}

// roomForMany has the first process answer for the second.
func roomForMany() Saboteur {
	return at(wire.OpenProcess, "Y150", "a second process is opened beside the first, or so it says", "process.one/second", func(c *liveCall, p *lived) bool {
		if p.opened {
			return true
		}
		c.after = func(a *reply) {
			failure, err := wire.DecodeError(a.body.Bytes())
			if e, ok := failure.(*sandbox.Error); err == nil && ok && e.Actual == sandbox.ActualProcessAlreadyOpen {
				c.env.Fire()
				a.become(wire.Empty{})
			}
		}
		return true
	})
}
