package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// drain is how long what a dead command wrote may take to be read.
const drain = 5 * time.Second

// Execute runs a command to its end. What it left running ends with it.
func (p *provider) Execute(ctx context.Context, id sandbox.InstanceID, c sandbox.Command) (sandbox.Settlement, error) {
	const op = sandbox.OpExecute
	none := sandbox.Settlement{}
	i, err := p.enter(ctx, op, id, sandbox.StateActive)
	if err != nil {
		return none, err
	}
	if err := c.Validate(); err != nil {
		return none, invalid(op, err)
	}
	if longest := i.value.Profile.ResourceLimits.MaxDurationSeconds; c.TimeoutSeconds > longest {
		return none, sandbox.Unavailable(op, sandbox.RequireResources,
			"timeout_seconds "+strconv.FormatInt(c.TimeoutSeconds, 10), "max_duration_seconds "+strconv.FormatInt(longest, 10))
	}
	began := time.Now()
	r, err := i.start(ctx, op, sandbox.ProcessRequest{
		Executable: c.Executable, Arguments: c.Arguments, WorkingDirectory: c.WorkingDirectory, Environment: c.Environment,
	}, false)
	if err != nil {
		return none, err
	}
	defer r.close()
	full := make(chan sandbox.Stream, 2)
	var pumps sync.WaitGroup
	pumps.Go(func() {
		_, _ = r.stdin.Write(c.Stdin) // what it does not read is not its failure
		r.stdin.Close()
	})
	stdout, stderr := &capture{limit: c.OutputLimitBytes}, &capture{limit: c.OutputLimitBytes}
	pumps.Go(func() { stdout.fill(r.stdout, func() { full <- sandbox.StreamStdout }) })
	pumps.Go(func() { stderr.fill(r.stderr, func() { full <- sandbox.StreamStderr }) })
	late := time.NewTimer(time.Until(began.Add(time.Duration(c.TimeoutSeconds) * time.Second)))
	defer late.Stop()
	timedOut, over := false, sandbox.Stream("")
	select {
	case <-r.over: // process 1 went after the command, and everything with it
	case over = <-full:
	case <-late.C:
		timedOut = true
	case <-ctx.Done():
	}
	if err := r.kill(context.WithoutCancel(ctx)); err != nil {
		return none, err
	}
	// Most often nobody holds the other ends any more. But a command can have handed
	// one to another of its instance, which lives.
	for _, end := range []*os.File{r.stdin, r.stdout, r.stderr} {
		_ = end.SetDeadline(time.Now().Add(drain))
	}
	pumps.Wait()
	if over == "" {
		select {
		case over = <-full:
		default:
		}
	}
	s := sandbox.Settlement{
		TimedOut: timedOut, StartedAt: sandbox.At(began), FinishedAt: max(now(), sandbox.At(began)), Stdout: stdout.data, Stderr: stderr.data,
	}
	switch {
	case ctx.Err() != nil:
		return none, ctx.Err()
	case over != "":
		return none, sandbox.OverLimit(over, c.OutputLimitBytes)
	case timedOut:
		return s, nil
	case r.exit != nil:
		s.Exit = *r.exit
		return s, nil
	}
	if _, err := p.find(op, id); err != nil {
		return none, sandbox.Failed(op, sandbox.ReasonInstanceLost, nil)
	}
	return none, sandbox.Failed(op, sandbox.ReasonProviderError, nil)
}

// capture keeps a stream up to its limit, and reads on after it: a writer that
// stands still could not be told from one that goes on.
type capture struct {
	limit int64
	data  []byte
}

func (c *capture) fill(from io.Reader, full func()) {
	buffer := make([]byte, 64<<10)
	for told := false; ; {
		n, err := from.Read(buffer)
		room := c.limit - int64(len(c.data))
		c.data = append(c.data, buffer[:min(int64(n), room)]...)
		if int64(n) > room && !told {
			told = true
			full()
		}
		if err != nil {
			return
		}
	}
}
