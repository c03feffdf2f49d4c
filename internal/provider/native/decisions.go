package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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
}

// Refusal is one destination that was asked for and refused for one reason.
type Refusal struct {
	Host   string // as it was asked for where it is no name, at most 255 bytes
	Port   int64  // 0 where none was understood
	Reason string
	Count  int64
}

// Decisions sums up the decision log of a live allowlist instance. An instance
// without a guard has an empty sum.
// Errors: SandboxInstanceNotFound; those of the file.
func (p *Provider) Decisions(ctx context.Context, id sandbox.InstanceID) (Decisions, error) {
	in, err := p.find(sandbox.OpRelease, id)
	if err != nil || !in.guarded() {
		return Decisions{}, err
	}
	f, err := in.at.open(in.at.decisions(), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) { // never activated
		return Decisions{}, nil
	}
	if err != nil {
		return Decisions{}, err
	}
	defer f.Close()
	d, err := sum(ctx, io.LimitReader(f, 2*maxAttendantLog))
	d.Ended = !in.runs(in.posts()[0])
	return d, err
}

// sum reads lines to their end. A last line that is not whole is still being
// written; one that cannot be read counts as a refusal of nobody knows what.
func sum(ctx context.Context, r io.Reader) (Decisions, error) {
	var d Decisions
	seen := map[Refusal]int64{}
	for lines := bufio.NewReaderSize(r, guard.MaxLineBytes); ctx.Err() == nil; {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return d, err
		}
		var at guard.Line
		if json.Unmarshal(line, &at) != nil || at.Decision != guard.Allow && at.Decision != guard.Deny {
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
	return d, ctx.Err()
}
