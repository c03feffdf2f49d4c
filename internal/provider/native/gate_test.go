package native

import (
	"context"
	"testing"
)

// TestGate: many inside at once, or nobody; who gives up leaves it open.
func TestGate(t *testing.T) {
	var g gate
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := g.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.close(gaveUp); err == nil {
		t.Error("shut with two inside")
	}
	if err := g.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	shut := make(chan error)
	go func() { shut <- g.close(t.Context()) }()
	g.leave()
	g.leave()
	g.leave()
	if err := <-shut; err != nil {
		t.Fatal(err)
	}
	if err := g.enter(gaveUp); err == nil {
		t.Error("entered a shut gate")
	}
	entered := make(chan error)
	for range 2 {
		go func() { entered <- g.enter(t.Context()) }()
	}
	select {
	case <-entered:
		t.Error("entered a shut gate")
	default:
	}
	g.open()
	g.open()
	for range 2 {
		if err := <-entered; err != nil {
			t.Error(err)
		}
	}
	g.leave()
	g.leave()
	if err := g.close(t.Context()); err != nil {
		t.Error(err)
	}
}
