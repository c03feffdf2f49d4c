package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/checkfu/checkfu/internal/cli/argument"
	"github.com/checkfu/checkfu/internal/provider/all"
	"github.com/checkfu/checkfu/internal/suite/lab"
)

// The bounds of a census command: it lists machines, it dumps nothing.
const (
	censusTime  = 30 * time.Second
	censusLines = 100_000
	censusLine  = 4096 // bytes of one line
)

// censusCommand runs a person's own census. It ends with all that the command
// started, when there is too much of it, when limit is over, or with ctx. One
// that did not come to its end is not asked again: the rest of the run would
// wait for it each time.
func censusCommand(script string, limit time.Duration) func(context.Context) ([]string, error) {
	var mu sync.Mutex
	var hung error
	return func(ctx context.Context) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		if hung != nil {
			return nil, hung
		}
		late := fmt.Errorf("no end within %v", limit)
		ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
		list, err := runCensus(ctx, script)
		if ctx.Err() != nil {
			if err = context.Cause(ctx); errors.Is(err, late) {
				hung = err
			}
		}
		return list, err
	}
}

func runCensus(ctx context.Context, script string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var complaint tail
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	list, err := readCensus(out)
	if err != nil {
		_ = cmd.Cancel() // what it still writes nobody reads
	}
	if waited := cmd.Wait(); err == nil && waited != nil {
		err = complaint.explain(waited)
	}
	return list, err
}

// readCensus reads one line for each thing.
func readCensus(out io.Reader) ([]string, error) {
	var list []string
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, censusLine)
	for lines.Scan() {
		if len(list) == censusLines {
			return nil, fmt.Errorf("more than %d lines", censusLines)
		}
		if line := strings.TrimSpace(lines.Text()); line != "" {
			list = append(list, line)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("a line of more than %d bytes", censusLine)
	}
	return list, lines.Err()
}

// tail keeps the last bytes that were written.
type tail struct{ data []byte }

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	const most = 256
	t.data = append(t.data, p[max(0, len(p)-most):]...)
	t.data = t.data[max(0, len(t.data)-most):]
	return len(p), nil
}

func (t *tail) explain(err error) error {
	if said := bytes.TrimSpace(t.data); len(said) > 0 {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// tryCensus refuses a command that cannot count, before anything is allocated.
func tryCensus(ctx context.Context, script string, limit time.Duration) error {
	if _, err := censusCommand(script, limit)(ctx); err != nil {
		return argument.Wrong("--census: expected a command that lists what is there, a line each, and ends with 0, got %q: %v", script, err)
	}
	return nil
}

// hostCensus names what a state directory has alive, but for the machines of
// processes beside this one and those outside the area of o, which come and go as
// they like.
func hostCensus(dir string, o *all.Opened) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		machines, err := o.Host.List(ctx)
		if err != nil {
			return nil, err
		}
		others := outside(dir, o.Dir)
		for _, m := range machines {
			if m.Owned && m.OwnerPID != int64(os.Getpid()) {
				others = append(others, string(m.InstanceID))
			}
		}
		return lab.Census(dir, others...), nil
	}
}

// outside names the instances of a state directory that are not below area. Before it
// has a record, an instance's directory has a prefix to its id.
func outside(dir, area string) []string {
	var ids []string
	found, _ := filepath.Glob(filepath.Join(dir, "*", "instances", "*")) // nothing where dir is no pattern of itself
	for _, path := range found {
		if !strings.HasPrefix(path, area+"/") {
			ids = append(ids, strings.TrimPrefix(filepath.Base(path), ".new-"))
		}
	}
	return ids
}
