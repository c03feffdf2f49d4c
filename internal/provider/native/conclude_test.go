package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// The last word of a guard: it served to the end where it ended because it was
// told to. One that was killed did not, however shortly before, and whether or not
// its parent has heard of it; nor did one whose log is not whole.
func TestConclude(t *testing.T) {
	p := guarded(newProvider(t, "runc"), "plain")
	log := func(in *instance) *os.File {
		f, err := os.OpenFile(in.at.decisions(), os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, c := range []struct {
		name   string
		before func(in *instance) error
		ended  bool
	}{
		{"it serves", func(*instance) error { return nil }, false},
		{"killed in the last instant", func(in *instance) error { return unix.Kill(in.guard.PID(), unix.SIGKILL) }, true},
		{"killed, and heard of", func(in *instance) error {
			err := unix.Kill(in.guard.PID(), unix.SIGKILL)
			ended(t, in.guard)
			return err
		}, true},
		{"ended before it was told to", func(in *instance) error { return in.guard.Stop(t.Context()) }, true},
		{"its last line is cut", func(in *instance) error {
			info, err := os.Stat(in.at.decisions())
			if err == nil {
				err = os.Truncate(in.at.decisions(), info.Size()-1)
			}
			return err
		}, true},
		{"a line that it did not write", func(in *instance) error {
			_, err := log(in).WriteString(`{"kind":"decision","decision":"allow"}` + "\n")
			return err
		}, true},
		{"a log beyond its bound", func(in *instance) error {
			_, err := log(in).Write(append(make([]byte, maxAttendantLog), '\n'))
			return err
		}, true},
	} {
		id := activate(t, p, allowing(p, listed))
		sh(t, p, id, ask("allowed.test:443"))
		in, err := p.find(sandbox.OpExecute, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.before(in); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it may be asked again: then the guard is gone
			d, err := p.Conclude(t.Context(), id)
			if err != nil || d.Ended != c.ended || d.Allowed < 1 && c.name != "its last line is cut" {
				t.Errorf("%s: %+v, %v", c.name, d, err)
			}
			c.ended = true
		}
		if s := sh(t, p, id, ask("allowed.test:443")); strings.Contains(string(s.Stdout), "HTTP") {
			t.Errorf("%s: something passes afterwards: %q", c.name, s.Stdout)
		}
		if _, err := p.Release(t.Context(), id, sandbox.ReleaseRequest{}); err != nil {
			t.Error(err)
		}
	}
	if d, err := p.Conclude(t.Context(), activated(t, p)); err != nil || d.Ended {
		t.Errorf("without a guard: %+v, %v", d, err)
	}
	if _, err := p.Conclude(t.Context(), "x"); !errors.Is(err, &sandbox.Error{Kind: sandbox.InstanceNotFound, Operation: sandbox.OpRelease}) {
		t.Error(err)
	}
}

// A guard that does not end is not waited for longer than the caller waits.
func TestConclude_IsBounded(t *testing.T) {
	p := guarded(newProvider(t, "runc"), "plain")
	id := activate(t, p, allowing(p, listed))
	in, err := p.find(sandbox.OpExecute, id)
	if err != nil {
		t.Fatal(err)
	}
	stopped := in.guard.PID()
	if err := unix.Kill(stopped, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Conclude(hurried, id); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := unix.Kill(stopped, unix.SIGCONT); err != nil {
		t.Error(err)
	}
}

// Another process of the same user, as the one that runs a command in a session,
// reads the same, from where it read last; also where it knows the directory by a
// symbolic link. One more that reads the log is no guard.
func TestDecisions_OfAnotherOwner(t *testing.T) {
	p := guarded(newProvider(t, "runc"), "plain")
	id := activate(t, p, allowing(p, listed))
	opt := p.opt
	opt.Dir = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(p.opt.Dir, opt.Dir); err != nil {
		t.Fatal(err)
	}
	other, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(p.place(id).decisions())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	sleeper(t, log)
	before, err := other.Decisions(t.Context(), id, 0)
	if err != nil || before.Allowed != 0 || before.Through == 0 || before.Ended {
		t.Errorf("%+v, %v", before, err)
	}
	if end, err := other.Decisions(t.Context(), id, -1); err != nil || end.Through != before.Through || end.Ended {
		t.Errorf("%+v, %v", end, err)
	}
	sh(t, p, id, ask("allowed.test:443")+";"+ask("other.test:443"))
	after, err := other.Decisions(t.Context(), id, before.Through)
	if err != nil || after.Allowed != 1 || len(after.Refused) != 1 || after.Ended {
		t.Errorf("%+v, %v", after, err)
	}
	if again, err := other.Decisions(t.Context(), id, after.Through); err != nil || again.Allowed != 0 || len(again.Refused) != 0 || again.Through != after.Through {
		t.Errorf("%+v, %v", again, err)
	}
	in, err := p.find(sandbox.OpExecute, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(in.guard.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, in.guard)
	if gone, err := other.Decisions(t.Context(), id, 0); err != nil || !gone.Ended || gone.Allowed != 1 {
		t.Errorf("%+v, %v", gone, err)
	}
	for _, none := range []sandbox.InstanceID{"", "../x", "0123456789abcdef0123456789abcdef"} {
		if _, err := other.Decisions(t.Context(), none, 0); err == nil {
			t.Errorf("%q has decisions", none)
		}
	}
}
