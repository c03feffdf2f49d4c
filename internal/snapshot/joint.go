package snapshot

import "sync"

// joint does something that helps everybody who asked for it before it began, once
// for all of them: ten snapshots that are published at once wait for the disk twice and
// not ten times.
type joint struct {
	under sync.Mutex // held by the call that is under way

	mu   sync.Mutex
	next *turn // that has not begun
}

type turn struct {
	done chan struct{}
	err  error // valid after done
}

// do returns what came of a call of f that began after do did. Of all calls one at a
// time is under way.
func (j *joint) do(f func() error) error {
	j.mu.Lock()
	if t := j.next; t != nil {
		j.mu.Unlock()
		<-t.done
		return t.err
	}
	t := &turn{done: make(chan struct{})}
	j.next = t
	j.mu.Unlock()

	j.under.Lock()
	defer j.under.Unlock()
	j.mu.Lock()
	j.next = nil // who comes from here on came too late
	j.mu.Unlock()
	defer close(t.done)
	t.err = f()
	return t.err
}
