package sandboxtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// benign are odd and right.
func benign() []Saboteur {
	streamed := func(id, fault string, change func(p sandbox.Process) sandbox.Process) Saboteur {
		return Saboteur{ID: id, Fault: fault, Wrap: func(p sandbox.Provider, _ *Env) sandbox.Provider {
			return Override{Provider: p, Members: func(o *sandbox.Optional) {
				open := o.OpenProcess
				o.OpenProcess = OpenProcessFunc(func(ctx context.Context, id sandbox.InstanceID, processID string, q sandbox.ProcessRequest) (sandbox.Process, error) {
					live, err := open.OpenProcess(ctx, id, processID, q)
					if err != nil {
						return nil, err
					}
					return change(live), nil
				})
			}}
		}}
	}
	return []Saboteur{
		streamed("T1", "output in chunks of one byte and more, cut anywhere", func(p sandbox.Process) sandbox.Process {
			return &chunked{Process: p, output: &ragged{from: p.Output()}, errs: p.Error()}
		}),
		streamed("T2", "output gathered and handed out in other pieces", func(p sandbox.Process) sandbox.Process {
			return &chunked{Process: p, output: bufio.NewReaderSize(p.Output(), 1<<16), errs: p.Error()}
		}),
		streamed("T3", "standard error in scraps between the output", func(p sandbox.Process) sandbox.Process {
			return &chunked{Process: p, output: p.Output(), errs: &ragged{from: p.Error()}}
		}),
		{ID: "T4", Fault: "slow: a second goes by before every command", Wrap: slowed},
		{ID: "T5", Fault: "ids of every character and length that is legal", Wrap: oddIDs},
		{ID: "T6", Fault: "errors as long as they may be", Wrap: verbose},
		{ID: "T7", Fault: "the sets of the envelope in another order", Wrap: func(p sandbox.Provider, _ *Env) sandbox.Provider {
			return Override{Provider: p, CapabilitiesFunc: func(ctx context.Context) (sandbox.Capabilities, error) {
				c, err := p.Capabilities(ctx)
				c.Tiers, c.Platforms, c.NetworkModes, c.RetentionModes = reversed(c.Tiers), reversed(c.Platforms), reversed(c.NetworkModes), reversed(c.RetentionModes)
				return c, err
			}}
		}},
		{ID: "T8", Fault: "empty results as lists, and lists with room", Wrap: func(p sandbox.Provider, _ *Env) sandbox.Provider {
			return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
				s, err := p.Execute(ctx, id, c)
				if err == nil {
					s.Stdout, s.Stderr = append(make([]byte, 0, 1<<12), s.Stdout...), append(make([]byte, 0, 1<<12), s.Stderr...)
				}
				return s, err
			}}
		}},
	}
}

func reversed[E any](list []E) []E {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// chunked is a process with other readers.
type chunked struct {
	sandbox.Process
	output, errs io.Reader
}

func (c *chunked) Output() io.Reader { return c.output }
func (c *chunked) Error() io.Reader  { return c.errs }

// ragged gives one byte, then a few, then many, and begins again.
type ragged struct {
	from io.Reader
	size int
}

func (r *ragged) Read(b []byte) (int, error) {
	r.size = r.size%4093*2 + 1
	return r.from.Read(b[:min(len(b), r.size)])
}

// slowed lets a simulated second go by in the machine first.
func slowed(p sandbox.Provider, _ *Env) sandbox.Provider {
	return Override{Provider: p, ExecuteFunc: func(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
		nap := sandbox.Command{Executable: "/bin/sh", Arguments: []string{"-c", "sleep 1"}, WorkingDirectory: "/", TimeoutSeconds: 5, OutputLimitBytes: 1}
		_, _ = p.Execute(ctx, id, nap)
		return p.Execute(ctx, id, c)
	}}
}

// verbose fills what an error may say freely, and its local cause.
func verbose(p sandbox.Provider, _ *Env) sandbox.Provider {
	long := func(err error) error {
		e, ok := err.(*sandbox.Error)
		if !ok {
			return err
		}
		longer := *e
		longer.Err = errors.New(strings.Repeat("because ", 4096))
		if e.Kind == sandbox.LifecycleConflict || e.Kind == sandbox.CapabilityUnavailable {
			longer.Expected += strings.Repeat("~", sandbox.MaxPathBytes-len(e.Expected))
		}
		return &longer
	}
	return translated(p, translation{errs: long})
}
