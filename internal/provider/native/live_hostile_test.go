package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/provider/native/machine"
	"github.com/checkfu/checkfu/sandbox"
)

// TestLive_AWorkloadCannotLoseItsSession: whatever a workload puts where its generation
// is written, it goes on, with its processes and without.
func TestLive_AWorkloadCannotLoseItsSession(t *testing.T) {
	p := liveProvider(t)
	for name, script := range map[string]string{
		"a directory": "mkdir -p generation/x; exec 8<generation",
		"a link":      "ln -s /etc/passwd generation",
	} {
		t.Run(name, func(t *testing.T) {
			r := retained(p, work)
			id := activeDurable(t, p, r)
			detached(t, p, id, "cd /workspace/.checkfu; rm -f generation; "+script+"; "+counting)
			before := counts(t, p, id, 20)
			ref := pausedLive(t, p, id)
			again := resumed(t, p, r, ref)
			counts(t, p, again, before)
			h, err := p.Release(t.Context(), again, sandbox.ReleaseRequest{ExpiresAt: later(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			files := resumed(t, p, r, *h.Value.Snapshot)
			mustExit(t, sh(t, p, files, "ls -d /workspace/.checkfu/generation"), 0)
			if err := p.Destroy(t.Context(), files); err != nil {
				t.Error(err)
			}
		})
	}
}

// large is a machine whose cgroup counts more memory than any disk has.
type large struct {
	machine.Machine
	dir string
}

func (m large) Observe(context.Context) (machine.Observed, error) {
	return machine.Observed{CgroupPaths: []string{m.dir}}, nil
}

// TestLive_RoomFor: a checkpoint that the disk may have no room for is not begun, since
// the homes of other machines lie on that disk.
func TestLive_RoomFor(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		bytes string
		cause machine.Cause
	}{{"1", ""}, {"4611686018427387904", machine.CauseDisk}} {
		if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte(test.bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		err := roomFor(t.Context(), large{dir: dir}, machine.Limits{}, dir)
		var got *machine.CheckpointError
		if errors.As(err, &got); (got == nil) != (test.cause == "") || got != nil && got.Cause != test.cause {
			t.Errorf("%s bytes: got %v, want cause %q", test.bytes, err, test.cause)
		}
	}
}
