package clocktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/sandboxruntime/clocktest"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clocktest.New(start)
	short, long, stopped := c.NewTimer(time.Second), c.NewTimer(time.Minute), c.NewTimer(time.Second)
	if c.Timers() != 3 || !stopped.Stop() || stopped.Stop() {
		t.Error("a running timer stops once")
	}
	c.Advance(time.Second - 1)
	select {
	case <-short.C():
		t.Error("fired early")
	default:
	}
	c.Advance(1)
	if at := <-short.C(); !at.Equal(start.Add(time.Second)) || !c.Now().Equal(at) || short.Stop() {
		t.Error(at)
	}
	select {
	case <-long.C():
		t.Error("fired early")
	case <-stopped.C():
		t.Error("fired after Stop")
	default:
	}
	select {
	case <-c.NewTimer(0).C():
	default:
		t.Error("a timer of nothing waits")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- c.AwaitTimers(ctx, 0) }()
	c.Advance(time.Minute)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	done, stop := context.WithCancel(ctx)
	stop()
	if err := c.AwaitTimers(done, 5); err != context.Canceled {
		t.Error(err)
	}
}
