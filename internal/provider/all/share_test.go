package all

import (
	"testing"
)

func TestOnlyTheLastOneRemovesWhatIsCommon(t *testing.T) {
	dir := t.TempDir()
	a, err := join(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := join(dir)
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	last := func() error { called++; return nil }
	if err := a.leave(last); err != nil || called != 0 {
		t.Errorf("%v: removed under another's feet", err)
	}
	if err := b.leave(last); err != nil || called != 1 {
		t.Errorf("%v: called %d times", err, called)
	}
	// Whoever comes while it is removed waits until that is done.
	c, err := join(dir)
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan error, 1)
	if err := c.leave(func() error {
		go func() {
			d, err := join(dir)
			if err == nil {
				err = d.leave(last)
			}
			joined <- err
		}()
		select {
		case err := <-joined:
			t.Errorf("joined meanwhile: %v", err)
		default:
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := <-joined; err != nil || called != 2 {
		t.Errorf("%v: called %d times", err, called)
	}
}

func TestStateDirectoriesShareNoCgroup(t *testing.T) {
	if a, b := cgroupParent("/a"), cgroupParent("/b"); a == b || a == cgroupParent(DefaultDir) || len(a) > 32 {
		t.Errorf("%s, %s", a, b)
	}
}
