package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/checkfu/checkfu/sandbox"
)

// B25: two snapshots at once of 10,000 files that were written a moment ago, while a
// program goes on: for each number it writes a file of one tree and then one of the
// other. Each snapshot has all files that were there, whole, and of what came after
// what one moment had: no file without those before it, all of them whole but the one
// that was being written, and none of the second tree that the first does not have.
func TestSnapshot_IsOneMoment(t *testing.T) {
	const many = 10_000
	durableDrivers(t, func(t *testing.T, p *Provider) {
		r := retained(p, work)
		r.Profile.ResourceLimits.DiskBytes = 128 << 20 // room for so many files
		id := activate(t, p, r)
		open(t, p, id, fmt.Sprintf(`cd /workspace/repo && mkdir early first second && seq %d | awk '{ f = "early/" $1; print $1 > f; close(f) }'
			n=0; while :; do n=$((n+1)); echo $n >first/$n && echo $n >second/$n || exit; done`, many))
		mustExit(t, sh(t, p, id, "until [ -s /workspace/repo/second/3 ]; do :; done"), 0)

		taken := make([]sandbox.Snapshot, 2)
		var both sync.WaitGroup
		for i := range taken {
			both.Go(func() {
				h, err := p.Snapshot(context.Background(), id, sandbox.SnapshotRequest{ExpiresAt: later(time.Hour)})
				if err != nil {
					t.Error(err)
				}
				taken[i] = h.Value
			})
		}
		both.Wait()
		mustExit(t, sh(t, p, id, "cd /workspace/repo/second; n=$(ls | wc -l); until [ -e $((n+2)) ]; do :; done"), 0) // and it goes on
		if err := p.Destroy(t.Context(), id); err != nil || t.Failed() {
			t.Fatal(err)
		}
		for _, ref := range taken {
			again := resumed(t, p, r, ref)
			tree := func(name string) (files, whole int) {
				return numbered(t, filepath.Join(p.place(again).home(), "mounts", "0", name))
			}
			files, whole := tree("early")
			first, wholeFirst := tree("first")
			second, wholeSecond := tree("second")
			t.Logf("captured at files %d and %d", first, second)
			if files != many || whole != many {
				t.Errorf("%d files of %d, %d of them whole", files, many, whole)
			}
			if second < 3 || second > first || first > second+1 || first+second-wholeFirst-wholeSecond > 1 {
				t.Errorf("%d of %d files are whole, and %d of %d", wholeFirst, first, wholeSecond, second)
			}
			if err := p.DestroySnapshot(t.Context(), ref.SnapshotID); err != nil {
				t.Error(err)
			}
		}
		noneIsKept(t, p)
	})
}

// numbered counts files 1, 2, 3 and so on of a directory, and those that hold their
// number. Other names, and numbers that are left out, are faults.
func numbered(t *testing.T, dir string) (files, whole int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= len(entries); n++ {
		body, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(n)))
		if err != nil {
			t.Error(err)
		}
		if string(body) == strconv.Itoa(n)+"\n" {
			whole++
		}
	}
	return len(entries), whole
}
