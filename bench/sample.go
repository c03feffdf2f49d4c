package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"
)

// samples are the measured values of one side: milliseconds unless its line
// says otherwise.
type samples []float64

func (s samples) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// quantile is the smallest sample that the share q of all does not exceed.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[max(0, int(math.Ceil(q*float64(len(s))))-1)]
}

func (s samples) min() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Min(s)
}

func (s samples) max() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

// side does one round and says how long the part of it that counts took.
type side func(ctx context.Context) (time.Duration, error)

// timed is a side of which everything counts.
func timed(f func(ctx context.Context) error) side {
	return func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx)
		return time.Since(begin), err
	}
}

// enough is how long interleave takes samples; it then stops with those it has.
const enough = 90 * time.Second

// interleave gives every side its turn n times after one round that does not
// count. With less than three rounds in time it fails.
func interleave(ctx context.Context, n int, sides ...side) ([]samples, error) {
	all := make([]samples, len(sides))
	begin := time.Now()
	for round := -1; round < n; round++ {
		if round >= 3 && time.Since(begin) > enough {
			break
		}
		for i, s := range sides {
			took, err := s(ctx)
			if err != nil {
				return nil, errors.Join(err, ctx.Err())
			}
			if round >= 0 {
				all[i] = append(all[i], millis(took))
			}
		}
	}
	return all, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
