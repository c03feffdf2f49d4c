package native

import (
	"context"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/sandbox"
)

// KeptSnapshot is one snapshot on this host, of whoever made it.
type KeptSnapshot struct {
	Snapshot sandbox.Snapshot
	Live     bool  // it has the processes of its machine
	Bytes    int64 // that the disk gives it; blocks that are shared count for each
}

// Snapshots names every snapshot whose manifest can be read, in ascending order
// of ids: also what its maker was killed before it could tell of.
// Errors: the operating system's.
func (p *Provider) Snapshots(ctx context.Context) ([]KeptSnapshot, error) {
	if p.snapshots == nil {
		return nil, p.storeFault
	}
	list, err := p.snapshots.List(ctx)
	kept := []KeptSnapshot{}
	for _, k := range list {
		if k.Err == nil {
			kept = append(kept, KeptSnapshot{Snapshot: k.Manifest.Snapshot, Live: k.Manifest.Live != nil, Bytes: k.Bytes})
		}
	}
	return kept, err
}

// HomeBytes is what the disk gives the home of a durable instance; 0 for any
// other, whose home is memory, and for one that is not there.
func (p *Provider) HomeBytes(id sandbox.InstanceID) int64 {
	if filepath.Base(string(id)) != string(id) { // it comes from a record, and names nothing elsewhere
		return 0
	}
	var st unix.Stat_t
	if unix.Lstat(place{filepath.Join(p.instancesDir(), string(id))}.image(), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}
