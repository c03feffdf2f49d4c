package native

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/guard"
	"github.com/checkfu/checkfu/sandbox"
)

// Bounds of what is told of a decision log; the rest is counted.
const (
	maxRefusals = 256
	maxHost     = 255
)

// Decisions is what the guard of one instance decided so far. It is the guard's
// own word.
type Decisions struct {
	Allowed int64     // requests that were let through
	Refused []Refusal // most frequent first, at most 256
	Others  int64     // refusals that are in no entry of Refused
	Ended   bool      // the guard is gone before its machine: nothing is reached any more
	Through int64     // bytes of the log that were read: where the next look begins
}

// Refusal is one destination that was asked for and refused for one reason.
type Refusal struct {
	Host   string // as it was asked for where it is no name, at most 255 bytes
	Port   int64  // 0 where none was understood
	Reason string
	Count  int64
}

// Decisions sums up the decision log of an allowlist instance of this host,
// whoever owns it, from a byte of the log that an earlier answer named, or 0; below
// 0 it sums up nothing and says where the log ends. One without a guard has an empty
// sum.
// Errors: SandboxInstanceNotFound; those of the file.
func (p *Provider) Decisions(ctx context.Context, id sandbox.InstanceID, since int64) (Decisions, error) {
	in, err := p.find(sandbox.OpRelease, id)
	if err != nil {
		return p.othersDecisions(ctx, id, since)
	}
	if !in.guarded() {
		return Decisions{}, nil
	}
	d, _, err := readDecisions(ctx, in.at, since)
	d.Ended = !in.runs(in.posts()[0])
	return d, err
}

// othersDecisions is Decisions of an instance that another process owns. Its guard
// lives as long as somebody but us has the log open for writing.
func (p *Provider) othersDecisions(ctx context.Context, id sandbox.InstanceID, since int64) (Decisions, error) {
	if !validID(id) {
		return Decisions{}, sandbox.NoInstance(sandbox.OpRelease, id)
	}
	at := p.place(id)
	r, err := readRecord(at)
	if err != nil || r.Driver != p.opt.Driver.Name() {
		return Decisions{}, sandbox.NoInstance(sandbox.OpRelease, id)
	}
	if !r.Guarded {
		return Decisions{}, nil
	}
	d, _, err := readDecisions(ctx, at, since)
	d.Ended = d.Through > 0 && !isOpen(at.decisions())
	return d, err
}

// Conclude ends the guard of an allowlist instance of this process, in order, and
// sums up all that it decided: for whoever has nothing more to run there. Ended
// then says that the guard did not serve to the last: that it was gone already, or
// did not end as it was told to, or left a log that is not whole. So one that died
// in the last instant is found out, however late its parent hears of it. Asked
// again it finds a guard that is gone.
//
// Blocks: while the guard ends, at most some seconds; ctx.
// Errors: as those of Decisions; a guard that does not end; of an unrestricted
// instance, that its fence did not stand to the end.
func (p *Provider) Conclude(ctx context.Context, id sandbox.InstanceID) (Decisions, error) {
	in, err := p.find(sandbox.OpRelease, id)
	if err == nil && in.linked() && in.currentState() == sandbox.StateActive {
		if err := in.hasUplink(); err != nil {
			return Decisions{}, fmt.Errorf("the fence of the machine was lost, and its link cut: %w", err)
		}
	}
	if err != nil || !in.guarded() {
		return Decisions{}, err
	}
	in.mu.Lock()
	g := in.guard
	in.mu.Unlock()
	if g == nil { // never activated, or its activation failed
		return Decisions{}, nil
	}
	served := in.runs(in.posts()[0])
	if err := g.Stop(ctx); err != nil {
		return Decisions{}, fmt.Errorf("stop the egress guard: %w", err)
	}
	d, whole, err := readDecisions(ctx, in.at, 0)
	d.Ended = !served || g.Err() != nil || !whole || d.Through > maxAttendantLog // ended for its length
	return d, err
}

// readDecisions sums up a decision log, and says whether its chain holds from
// since to the very end. A log that is not there was never begun.
func readDecisions(ctx context.Context, at place, since int64) (d Decisions, whole bool, err error) {
	f, err := at.open(at.decisions(), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	defer f.Close()
	if since < 0 {
		d.Through, err = lastLine(f)
		return d, false, err
	}
	if _, err := f.Seek(since, io.SeekStart); err != nil {
		return d, false, err
	}
	d, whole, err = sum(ctx, io.LimitReader(f, 2*maxAttendantLog))
	d.Through += since
	return d, whole, err
}

// lastLine is where the last line ends that is whole.
func lastLine(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	from := max(0, size-guard.MaxLineBytes)
	end, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	return from + int64(bytes.LastIndexByte(end, '\n')+1), err
}

// sum reads lines to their end and follows their chain. A last line that is not
// whole is still being written, or never will be; one that cannot be read counts
// for nothing.
func sum(ctx context.Context, r io.Reader) (d Decisions, whole bool, err error) {
	seen := map[Refusal]int64{}
	whole = true
	prev := ""
	for lines := bufio.NewReaderSize(r, guard.MaxLineBytes); ctx.Err() == nil; {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			whole = whole && len(line) == 0
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return d, false, err
		}
		d.Through += int64(len(line))
		var at guard.Line
		unread := json.Unmarshal(line, &at) != nil
		whole = whole && !unread && (prev == "" || at.Prev == prev)
		prev = canonical.Digest(bytes.TrimSuffix(line, []byte("\n")))
		if unread || at.Decision != guard.Allow && at.Decision != guard.Deny {
			continue // another kind, or a piece of a line that is longer than any of ours
		}
		if at.Decision == guard.Allow {
			d.Allowed++
			continue
		}
		key := Refusal{Host: at.Host, Port: at.Port, Reason: string(at.Reason)}
		if key.Host == "" {
			key.Host = at.Raw
		}
		key.Host = strings.ToValidUTF8(key.Host[:min(len(key.Host), maxHost)], "\uFFFD")
		if _, known := seen[key]; known || len(seen) < maxRefusals {
			seen[key]++
		} else {
			d.Others++
		}
	}
	for key, n := range seen {
		key.Count = n
		d.Refused = append(d.Refused, key)
	}
	slices.SortFunc(d.Refused, func(a, b Refusal) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return strings.Compare(a.Host+fmt.Sprint(a.Port)+a.Reason, b.Host+fmt.Sprint(b.Port)+b.Reason)
	})
	return d, whole, ctx.Err()
}
