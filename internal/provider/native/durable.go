package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/contain"
	"github.com/checkfu/checkfu/internal/snapshot"
	"github.com/checkfu/checkfu/internal/snapshot/volume"
	"github.com/checkfu/checkfu/sandbox"
)

// What a durable instance has and another has not: its home is one filesystem
// image on the disk, which a snapshot copies and a resumption starts from. The
// image's size is the disk limit, by bytes and by files, and none of it is the
// machine's memory.

// bytesPerFile is how much of a home there is for each file that it may hold. A
// file costs the host something even when it is empty.
const bytesPerFile = 4096

// inodes is how many files a home of so many bytes may hold.
func inodes(bytes int64) int64 { return min(max(bytes/bytesPerFile, 1024), 1<<20) }

// imageBytes is the size of an image that leaves so many bytes: the table of its
// files, 256 bytes each, lies in it too.
func imageBytes(bytes int64) int64 { return (bytes + inodes(bytes)*256) / 4096 * 4096 }

// probeBound is how long a look at what the host can do may take.
const probeBound = 10 * time.Second

// Durable says why no session can be kept here, or nil. It tries, which takes some
// 30 ms, until it was seen once that nothing is missing.
func (p *Provider) Durable() error {
	switch {
	case !p.opt.Durable:
		return errors.New("durable retention was not asked for")
	case p.storeFault != nil:
		return fmt.Errorf("the store of snapshots cannot be opened: %w", p.storeFault)
	}
	p.probing.Lock()
	defer p.probing.Unlock()
	if p.keeping {
		return nil
	}
	_, err := p.method(context.Background())
	p.keeping = err == nil
	return err
}

// Keeps says by which method durable sessions are kept here, and why by no better
// one. It tries, and leaves nothing.
// Errors: why they cannot be kept.
func (p *Provider) Keeps(ctx context.Context) (string, error) {
	if err := p.Durable(); err != nil {
		return "", err
	}
	choice, err := p.method(ctx)
	if err != nil {
		return "", err
	}
	return string(choice.Method) + " (" + choice.Reason + ")", nil
}

// method is the best that this host has of those that a home can be kept by.
func (p *Provider) method(ctx context.Context) (snapshot.Choice, error) {
	ctx, cancel := context.WithTimeout(ctx, probeBound)
	defer cancel()
	choice, err := p.choose(ctx, p.opt.Dir)
	if err == nil && choice.Form != snapshot.FormImage {
		err = errors.New(choice.Reason)
	}
	return choice, err
}

// openSnapshots opens the store of snapshots where one is wanted, and where there is
// one already: whoever is asked to destroy what it holds, or to sweep, cannot say
// that there is nothing because a program has gone from this host. A store that
// cannot be opened costs the retention mode and nothing else.
func (p *Provider) openSnapshots() {
	dir := filepath.Join(p.opt.Dir, "snapshots")
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) && !p.opt.Durable {
		return
	}
	p.snapshots, p.storeFault = snapshot.Open(dir, snapshot.Options{Now: p.opt.Now, Step: p.opt.Step})
	if p.storeFault != nil {
		p.snapshots = nil
	}
}

// withoutSnapshots takes out of an envelope what needs the store of snapshots.
func withoutSnapshots(c *sandbox.Capabilities) {
	c.RetentionModes = []sandbox.RetentionMode{sandbox.RetentionEphemeralZDR}
	c.Snapshots, c.SnapshotClone = false, false
}

func (in *instance) durable() bool {
	return in.request.Profile.RetentionMode == sandbox.RetentionDurable
}

// homeMemory is what of the home is the machine's memory.
func (in *instance) homeMemory() int64 {
	if in.durable() {
		return 0
	}
	return in.request.Profile.ResourceLimits.DiskBytes
}

// makeHome mounts the home: of a durable instance its image, new or out of a
// snapshot.
func (in *instance) makeHome(ctx context.Context) error {
	bytes := in.request.Profile.ResourceLimits.DiskBytes
	if !in.durable() {
		if in.p.twinHome.noDiskLimit {
			bytes = 0
		}
		return mountHome(in.at, bytes, in.trees)
	}
	if err := os.Mkdir(in.at.home(), 0o711); err != nil {
		return err
	}
	if in.kept != nil {
		return in.restoreHome(ctx)
	}
	if err := volume.Create(ctx, in.at.image(), imageBytes(bytes), inodes(bytes)); err != nil {
		return err
	}
	in.p.opt.Step("image")
	var err error
	if in.volume, err = volume.Mount(in.at.image(), in.at.home()); err != nil {
		return err
	}
	return layoutHome(in.at, in.trees)
}

// restoreHome makes the home out of the snapshot. /tmp is not kept, but for processes
// that go on.
func (in *instance) restoreHome(ctx context.Context) error {
	var err error
	if in.volume, err = in.kept.Mount(ctx, in.at.image(), in.at.home()); err != nil {
		return err
	}
	in.p.opt.Step("image")
	if err := inOurIDs(in.at.home()); err != nil {
		return err
	}
	for _, t := range in.trees {
		root, err := contain.Open(filepath.Join(in.at.home(), t.home), contain.Options{})
		if err == nil && t.guest == "/tmp" && !in.goingOn { // open files of those are in it
			err = root.RemoveAll(ctx, ".")
		}
		if root != nil {
			err = errors.Join(err, root.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inOurIDs refuses a home whose files are of other host ids than machines have here:
// another version of Checkfu kept it, and nothing in it would be its workload's.
func inOurIDs(home string) error {
	var st unix.Stat_t
	if err := unix.Stat(home, &st); err != nil {
		return wrap("stat "+home, err)
	}
	if st.Gid != IDBase {
		return sandbox.Conflict(sandbox.OpResume, "a home in the ids from "+strconv.Itoa(IDBase), "one from "+strconv.FormatUint(uint64(st.Gid), 10)+", made by another version of checkfu")
	}
	return nil
}
