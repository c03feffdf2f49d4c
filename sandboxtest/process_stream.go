package sandboxtest

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// chunks is a stream that is changed chunk by chunk. change gets what came and
// why there is no more, and gives what the reader gets.
type chunks struct {
	from   io.Reader
	change func(b []byte, err error) ([]byte, error)
	buf    []byte
	ready  []byte
	err    error
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.buf == nil {
		c.buf = make([]byte, 32<<10)
	}
	for len(c.ready) == 0 && c.err == nil {
		n, err := c.from.Read(c.buf)
		c.ready, c.err = c.change(c.buf[:n:n], err)
	}
	if len(c.ready) == 0 {
		return 0, c.err
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// sink is an input of which single methods are replaced.
type sink struct {
	io.WriteCloser
	write func(b []byte) (int, error)
	close func() error
}

func (s sink) Write(b []byte) (int, error) {
	if s.write != nil {
		return s.write(b)
	}
	return s.WriteCloser.Write(b)
}

func (s sink) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.WriteCloser.Close()
}

// readFunc is a reader.
type readFunc func(b []byte) (int, error)

func (s readFunc) Read(b []byte) (int, error) { return s(b) }

// streamFaults are wrong in a stream.
func streamFaults() []Saboteur {
	output := func(id, fault, kills string, change func(a *altered, env *Env) func([]byte, error) ([]byte, error)) Saboteur {
		return live(id, fault, kills, func(a *altered, env *Env) {
			a.output = &chunks{from: a.Process.Output(), change: change(a, env)}
		})
	}
	return []Saboteur{
		output("P11", "the last chunk is lost at the exit, if it is no whole line", "process.last-bytes/whole", lastLost),
		output("P12", "a chunk comes twice after a reconnect, which half a minute of silence needs", "process.idle/after", twiceAfterSilence),
		output("P13", "two chunks change places, far down the stream", "process.throughput/same", swapped),
		output("P14", "the output has no end of file", "process.end-of-file/end", func(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
			return func(b []byte, err error) ([]byte, error) {
				if err == io.EOF {
					env.Fire()
					env.Hang()
				}
				return b, err
			}
		}),
		live("P15", "the half-close is not passed on", "process.half-close/seen", func(a *altered, env *Env) {
			var closed tally
			a.input = sink{WriteCloser: a.Process.Input(), close: func() error { closed.add(1); return nil }}
			inner := a.Process.Output()
			a.output = readFunc(func(b []byte) (int, error) {
				// The child has answered everything and waits for the end.
				if closed.add(0) > 0 {
					env.Fire()
					env.Hang()
				}
				return inner.Read(b)
			})
		}),
		live("P16", "what one write has beyond 64 KiB is lost", "process.stdin-whole/whole", func(a *altered, env *Env) {
			inner := a.Process.Input()
			a.input = sink{WriteCloser: inner, write: func(b []byte) (int, error) {
				if len(b) <= 64<<10 {
					return inner.Write(b)
				}
				env.Fire()
				_, err := inner.Write(b[:64<<10])
				return len(b), err
			}}
		}),
		requested("P19", "standard error is inside the output", "process.stderr-apart/apart", func(q *sandbox.ProcessRequest) bool {
			if !slices.ContainsFunc(q.Arguments, func(s string) bool { return strings.Contains(s, ">&2") }) {
				return false
			}
			q.Arguments = append([]string{"-c", `exec "$@" 2>&1`, "sh", q.Executable}, q.Arguments...)
			q.Executable = "sh"
			return true
		}),
		output("P20", "the output is cut at 4 MiB", "process.no-ceiling/whole", func(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
			left := 4 << 20
			return func(b []byte, err error) ([]byte, error) {
				if len(b) > left {
					env.Fire()
					b, err = b[:left], io.EOF
				}
				left -= len(b)
				return b, err
			}
		}),
		live("P21", "a process that is idle for 60 s is ended", "process.idle/input", idleTimeout),
		output("P41", "output that is not UTF-8 is replaced", "process.bytes/same", func(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
			return func(b []byte, err error) ([]byte, error) {
				valid := bytes.ToValidUTF8(b, []byte("\ufffd"))
				if !bytes.Equal(valid, b) {
					env.Fire()
				}
				return valid, err
			}
		}),
		live("P42", "what is written before the child has answered once is kept up to 64 KiB", "process.backpressure/whole", dropsEarly),
		output("P43", "output that nobody fetches in a second loses its beginning", "process.slow-reader/whole", func(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
			opened, first := env.Now(), true
			return func(b []byte, err error) ([]byte, error) {
				if first && len(b) > 1 && env.Now().Sub(opened) >= time.Second {
					env.Fire()
					b = b[1:]
				}
				first = false
				return b, err
			}
		}),
		live("P44", "input waits while somebody reads diagnostics", "process.streams-at-once/input", func(a *altered, env *Env) {
			var readers tally
			diagnostics, input := a.Process.Error(), a.Process.Input()
			a.errors = readFunc(func(b []byte) (int, error) {
				readers.add(1)
				defer readers.add(-1)
				return diagnostics.Read(b)
			})
			a.input = sink{WriteCloser: input, write: func(b []byte) (int, error) {
				if readers.add(0) > 0 {
					env.Fire()
					env.Hang()
				}
				return input.Write(b)
			}}
		}),
		live("P45", "much that is written to standard error stops a process whose diagnostics nobody reads", "process.stderr-unread/goes-on", func(a *altered, env *Env) {
			inner := a.Process.Output()
			a.output = readFunc(func(b []byte) (int, error) {
				if a.says(">&2") && a.says("| head") {
					env.Fire()
					env.Hang()
				}
				return inner.Read(b)
			})
		}),
		live("P46", "the output is closed once wait has settled", "process.output-kept/kept", func(a *altered, env *Env) {
			var settled tally
			inner := a.Process.Output()
			a.wait = waiting(a, func(e sandbox.Exit) sandbox.Exit { settled.add(1); return e })
			a.output = readFunc(func(b []byte) (int, error) {
				if settled.add(0) > 0 {
					env.Fire()
					return 0, io.EOF
				}
				return inner.Read(b)
			})
		}),
		live("P62", "standard error is no stream", "process.stderr-ends/ends", func(a *altered, env *Env) {
			env.Fire()
			var none *io.PipeReader
			a.errors = none
		}),
	}
}

// lastLost hands over whole lines, and forgets what is left at the end.
func lastLost(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
	var held []byte
	return func(b []byte, err error) ([]byte, error) {
		all := append(held, b...)
		cut := bytes.LastIndexByte(all, '\n') + 1
		held = slices.Clone(all[cut:])
		if err != nil && len(held) > 0 {
			env.Fire()
		}
		return all[:cut], err
	}
}

// twiceAfterSilence serves the last chunk again when it was silent for long.
func twiceAfterSilence(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
	var last []byte
	at := env.Now()
	return func(b []byte, err error) ([]byte, error) {
		out := b
		if now := env.Now(); len(b) > 0 {
			if len(last) > 0 && now.Sub(at) > 30*time.Second {
				env.Fire()
				out = slices.Concat(last, b)
			}
			last, at = slices.Clone(b), now
		}
		return out, err
	}
}

// swapped holds the chunk that crosses 2 MiB back behind the next one.
func swapped(_ *altered, env *Env) func([]byte, error) ([]byte, error) {
	var held []byte
	total := 0
	return func(b []byte, err error) ([]byte, error) {
		before := total
		total += len(b)
		if before < 2<<20 && total >= 2<<20 && err == nil {
			held = slices.Clone(b)
			return nil, nil
		}
		if len(held) > 0 {
			env.Fire()
			b, held = slices.Concat(b, held), nil
		}
		return b, err
	}
}

// idleTimeout ends the process at the first write after a minute without one.
func idleTimeout(a *altered, env *Env) {
	var mu sync.Mutex
	at := env.Now()
	inner := a.Process.Input()
	a.input = sink{WriteCloser: inner, write: func(b []byte) (int, error) {
		mu.Lock()
		now := env.Now()
		idle := now.Sub(at)
		at = now
		mu.Unlock()
		if idle > time.Minute {
			env.Fire()
			return 0, io.ErrClosedPipe
		}
		return inner.Write(b)
	}}
}

// dropsEarly has room for 64 KiB while the child has not answered, and no word
// for a large write that goes beyond.
func dropsEarly(a *altered, env *Env) {
	var written, answered tally
	input, output := a.Process.Input(), a.Process.Output()
	a.input = sink{WriteCloser: input, write: func(b []byte) (int, error) {
		if len(b) > 32<<10 && written.add(len(b)) > 64<<10 && answered.add(0) == 0 {
			env.Fire()
			return len(b), nil
		}
		return input.Write(b)
	}}
	a.output = readFunc(func(b []byte) (int, error) {
		n, err := output.Read(b)
		answered.add(n)
		return n, err
	})
}
