package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// attaching is a saboteur of one rule about streams.
func attaching(id, fault, kills string, rule func(c *liveCall, p *lived) bool) Saboteur {
	return Saboteur{ID: id, Fault: fault, Kills: "wire.stream." + kills, Serve: living(func(c *liveCall) bool {
		return c.endpoint != wire.ProcessStream || rule(c, c.process)
	})}
}

// streaming is a saboteur that changes frames of the streams that which says.
func streaming(id, fault, kills string, which func(c *liveCall, p *lived) bool, frame func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool)) Saboteur {
	return attaching(id, fault, kills, func(c *liveCall, p *lived) bool {
		if which(c, p) {
			c.frame = frame(c)
		}
		return true
	})
}

// over says that the end of a process was asked for and told.
func over(_ *liveCall, p *lived) bool { return p.exit != nil }

// tail says that an attachment has nothing to hear but the end.
func tail(c *liveCall, p *lived) bool { return c.stream.Cursor > 0 && c.stream.Cursor == p.sent }

// ofType fires and makes something of each frame of a type.
func ofType(t wire.Type, make func(c *liveCall, f wire.Frame) ([]wire.Frame, bool)) func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool) {
	return func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool) {
		return func(f wire.Frame) ([]wire.Frame, bool) {
			if f.Type != t {
				return pass(f)
			}
			c.env.Fire()
			return make(c, f)
		}
	}
}

func dropped(_ *liveCall, f wire.Frame) ([]wire.Frame, bool) { return drop(f) }
func cut(*liveCall, wire.Frame) ([]wire.Frame, bool)         { return nil, false }

// wireStreamFaults are wrong in what a live process writes.
func wireStreamFaults() []Saboteur {
	return []Saboteur{
		streaming("Y100", "the evidence of what is over is observed anew", "open/evidence", over, ofType(wire.TypeOpen, func(_ *liveCall, f wire.Frame) ([]wire.Frame, bool) {
			o, err := wire.Decode[wire.Opened](f.Payload)
			if err != nil {
				return pass(f)
			}
			o.Evidence.ObservedAt = "9999-01-01T00:00:00.000Z"
			return pass(jsonFrame(wire.TypeOpen, o))
		})),
		streaming("Y101", "an attachment to what is over begins without open", "open/first", over, ofType(wire.TypeOpen, dropped)),
		attaching("Y102", "every replay begins at the first byte", "cursor/below", func(c *liveCall, _ *lived) bool {
			if c.stream.Cursor > wire.RewindBytes && c.stream.Cursor < 1<<20 {
				c.env.Fire()
				c.stream.Cursor = 0
				c.rewrite()
			}
			return true
		}),
		attaching("Y103", "the byte at the cursor is left out", "cursor/above", func(c *liveCall, _ *lived) bool {
			if c.stream.Cursor == 1 {
				c.env.Fire()
				c.stream.Cursor++
				c.rewrite()
			}
			return true
		}),
		streaming("Y104", "a replay gives other bytes", "cursor/bytes", func(c *liveCall, _ *lived) bool {
			return c.stream.Cursor == wire.RewindBytes
		}, ofType(wire.TypeOut, func(_ *liveCall, f wire.Frame) ([]wire.Frame, bool) {
			f.Payload = bytes.Clone(f.Payload)
			f.Payload[8] ^= 1
			return pass(f)
		})),
		streaming("Y105", "the digest is of what this attachment was sent", "end/digest", func(c *liveCall, p *lived) bool {
			return c.stream.Cursor > 0 && c.stream.Cursor < 64
		}, func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool) {
			var sum bytes.Buffer
			return func(f wire.Frame) ([]wire.Frame, bool) {
				switch f.Type {
				case wire.TypeOut:
					sum.Write(f.Payload[8:])
				case wire.TypeOutEnd:
					if e, err := wire.Decode[wire.OutEnd](f.Payload); err == nil {
						c.env.Fire()
						digest := sha256.Sum256(sum.Bytes())
						e.Digest = sandbox.Digest("sha256:" + hex.EncodeToString(digest[:]))
						return pass(jsonFrame(wire.TypeOutEnd, e))
					}
				}
				return pass(f)
			}
		}),
		streaming("Y106", "a late attachment hears of the exit twice", "end/exit", tail, ofType(wire.TypeExit, func(_ *liveCall, f wire.Frame) ([]wire.Frame, bool) {
			return []wire.Frame{f, f}, true
		})),
		streaming("Y107", "a late attachment does not hear that standard error has ended", "end/err-end", tail, ofType(wire.TypeErrEnd, dropped)),
		streaming("Y108", "out_end overtakes the last output of a replay", "end/order", func(c *liveCall, p *lived) bool {
			return c.stream.Cursor > 0 && c.stream.Cursor < 64
		}, func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool) {
			var held []wire.Frame
			return func(f wire.Frame) ([]wire.Frame, bool) {
				switch f.Type {
				case wire.TypeOut:
					f.Payload = bytes.Clone(f.Payload)
					held = append(held, f)
					return nil, true
				case wire.TypeOutEnd:
					c.env.Fire()
					out := append([]wire.Frame{f}, held...)
					held = nil
					return out, true
				}
				return pass(f)
			}
		}),
		streaming("Y109", "what is written while nobody ever read is lost at the exit", "detached/output", func(_ *liveCall, p *lived) bool {
			return p.exit != nil && p.attached == 0
		}, ofType(wire.TypeOut, dropped)),
		streaming("Y110", "a silent stream is ended", "silent/ping", func(c *liveCall, _ *lived) bool {
			return c.stream.HeartbeatMS == wire.MinHeartbeatMS
		}, ofType(wire.TypePing, cut)),
		streaming("Y111", "a poll just ends", "poll/empty", func(c *liveCall, _ *lived) bool { return c.stream.WaitMS > 0 }, ofType(wire.TypeDetach, cut)),
		streaming("Y112", "a poll forgets what comes while it waits", "poll/waits", func(c *liveCall, p *lived) bool {
			return c.stream.WaitMS > 1 && p.sent == 0
		}, ofType(wire.TypeOut, dropped)),
		streaming("Y113", "an older reader is cut off without a word", "readers/told", func(c *liveCall, p *lived) bool {
			return !p.ids[c.stream.AttachID]
		}, func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool) {
			return func(f wire.Frame) ([]wire.Frame, bool) {
				if f.Type != wire.TypeDetach || !bytes.Contains(f.Payload, []byte(wire.DetachSuperseded)) {
					return pass(f)
				}
				c.env.Fire()
				return nil, false
			}
		}),
		attaching("Y114", "an attachment that comes late takes the stream", "late/stays", func(c *liveCall, p *lived) bool {
			if p.ids[c.stream.AttachID] {
				c.env.Fire()
				c.stream.AttachID = wire.NewAttachID()
				c.rewrite()
			}
			return true
		}),
		streaming("Y115", "the end of the output is told with the exit", "closed/at-once", func(*liveCall, *lived) bool { return true }, func(c *liveCall) func(wire.Frame) ([]wire.Frame, bool) {
			var held []wire.Frame
			exited := false
			return func(f wire.Frame) ([]wire.Frame, bool) {
				switch f.Type {
				case wire.TypeOutEnd:
					if exited {
						return pass(f)
					}
					c.env.Fire()
					held = []wire.Frame{{Type: f.Type, Payload: bytes.Clone(f.Payload)}}
					return nil, true
				case wire.TypeExit:
					exited = true
					return append(held, f), true
				}
				return pass(f)
			}
		}),
		{ID: "Y116", Fault: "a process that nobody opened was killed", Kills: "wire.stream.unknown/wait", Serve: living(func(c *liveCall) bool {
			if c.endpoint != wire.ProcessWait || c.process.opened {
				return true
			}
			c.after = func(a *reply) {
				if a.status == 404 {
					c.env.Fire()
					exit := sandbox.Signaled("SIGKILL")
					a.become(wire.Waited{Exit: &exit})
				}
			}
			return true
		})},
		attaching("Y117", "a process has no more than forty readers in its life", "churn/attach", func(c *liveCall, p *lived) bool {
			if p.attached < 40 {
				return true
			}
			c.env.Fire()
			c.refuse(&wire.Error{Tag: wire.TagOverloaded, RetryAfterMS: 1000})
			return false
		}),
		{ID: "Y118", Fault: "input is text, with one kind of line break", Kills: "wire.stream.bytes", Serve: living(func(c *liveCall) bool {
			if bytes.Contains(c.data, []byte("\r\n")) {
				c.env.Fire()
				c.data = bytes.ReplaceAll(c.data, []byte("\r\n"), []byte("\n\n"))
				c.rewrite()
			}
			return true
		})},
		attaching("Y119", "the byte at which a connection broke is lost", "cuts/same", func(c *liveCall, p *lived) bool {
			if p.broken && p.exit == nil && c.stream.Cursor > 0 && c.stream.Cursor < p.sent && p.sent < 1<<20 {
				c.env.Fire()
				c.stream.Cursor++
				c.rewrite()
			}
			return true
		}),
	}
}
