package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Volume is an attached image, which is mounted then. It stays open, because that is
// how a write that the kernel gave up on is found: the kernel tells it once to whoever
// had the file open then.
//
// Concurrency: its methods may be called by many goroutines.
type Volume struct {
	at                  string
	root, device, image *os.File
	settle              time.Duration // how long a writer may take to end

	mu   sync.Mutex
	lost error // the first write that did not reach the image: it stays lost
}

// Close gives up the watch; the filesystem stays mounted. An open Volume keeps it
// from being unmounted. It may be called again.
func (v *Volume) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	for _, f := range []**os.File{&v.root, &v.device, &v.image} {
		if *f != nil {
			err = errors.Join(err, (*f).Close())
			*f = nil
		}
	}
	return err
}

// The requests of linux/fs.h that golang.org/x/sys does not have.
const (
	fifreeze = 0xc0045877
	fithaw   = 0xc0045878
)

// settle is how long writes that are under way may take to end, of every Volume but
// those of a test.
const settle = 5 * time.Second

var (
	// ErrRestless: somebody who was writing did not come to an end, as one who waits
	// for input in the middle of a write.
	ErrRestless = errors.New("the filesystem did not come to rest")
	// ErrLost: something that was written before never reached the image, or the
	// filesystem found itself damaged. No copy of it is worth having.
	ErrLost = errors.New("the filesystem lost what was written to it")
)

// Freeze writes everything of a mounted image into its file and holds up every
// writer until Thaw. What it returns is whole: every write before it succeeded.
//
// A writer can make the kernel wait for ever, so after 5 s, or when ctx is done,
// Freeze gives up; writers are held up all the same until the one who does not end
// is gone, and then go on. Nor can the process end before that, killed or not: whoever
// can has the writers stand still first.
//
// Errors: ErrRestless; ErrLost, for good; the context's; host errors. On an error
// nothing is frozen.
func (v *Volume) Freeze(ctx context.Context) (*Frozen, error) {
	root, err := v.again()
	if err != nil {
		return nil, err
	}
	written, frozen, abandoned := make(chan error), make(chan error), make(chan struct{})
	go func() {
		err := v.settled(false) // most is written before anybody is held up
		select {
		case written <- err:
		case <-abandoned:
			err = context.Canceled // nobody would know what for
		}
		if err != nil {
			root.Close()
			return
		}
		err = unix.IoctlSetInt(int(root.Fd()), fifreeze, 0)
		select {
		case frozen <- err:
		case <-abandoned:
			if err == nil {
				thaw(root)
			}
			root.Close()
		}
	}()
	select {
	case err = <-written:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		close(abandoned)
		return nil, err
	}
	bound := time.NewTimer(v.settle)
	defer bound.Stop()
	select {
	case err = <-frozen:
	case <-bound.C:
		close(abandoned)
		return nil, fmt.Errorf("%w in %s: %s", ErrRestless, v.settle, v.at)
	case <-ctx.Done():
		close(abandoned)
		return nil, fmt.Errorf("%w: %s: %w", ErrRestless, v.at, ctx.Err())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ioctl FIFREEZE of %s: %w", v.at, err), v.settled(true), root.Close())
	}
	f := &Frozen{root: root}
	if err := v.settled(true); err != nil {
		_, thawed := f.Thaw()
		return nil, errors.Join(err, thawed)
	}
	return f, nil
}

// again opens the root once more: what is frozen outlives the Volume, and what is
// told to one opened file is not told to the copies of its descriptor again.
func (v *Volume) again() (*os.File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.root == nil {
		return nil, fmt.Errorf("%s: %w", v.at, os.ErrClosed)
	}
	fd, err := unix.Openat(int(v.root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), v.at), nil
}

// settled writes out what was written, to the host's disk if all is set, and says what
// was lost since the mount. Each of the three files knows of writes that the others do
// not: the filesystem of the files' bytes, the device of its own form, the image of
// what the host's disk took.
func (v *Volume) settled(all bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil {
		return v.lost
	}
	if v.root == nil {
		return fmt.Errorf("%s: %w", v.at, os.ErrClosed)
	}
	var st unix.Statfs_t
	err := errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(v.root.Fd()))), os.NewSyscallError("fstatfs", unix.Fstatfs(int(v.root.Fd()), &st)))
	if all {
		err = errors.Join(err, v.device.Sync(), v.image.Sync())
	} else {
		const everything = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		err = errors.Join(err, os.NewSyscallError("sync_file_range", unix.SyncFileRange(int(v.image.Fd()), 0, 0, everything)))
	}
	if err == nil && st.Flags&unix.ST_RDONLY != 0 {
		err = errors.New("the kernel made it read-only")
	}
	if err == nil {
		var s super
		if s, err = readSuper(v.image); err == nil {
			err = s.sound()
		}
	}
	if err != nil {
		v.lost = fmt.Errorf("%w: %s: %w", ErrLost, v.at, err)
	}
	return v.lost
}

// Frozen is a filesystem at rest. It holds on to it, wherever it is mounted or no
// longer: one that nobody thaws can neither be written to nor be unmounted.
//
// Concurrency: Thaw may be called by many goroutines.
type Frozen struct {
	mu   sync.Mutex
	root *os.File // nil once thawed
}

// Thaw lets the writers go on, and reports whether the filesystem was at rest until
// now: whoever copied it meanwhile has one moment only then. It may be called again,
// and reports false then.
func (f *Frozen) Thaw() (frozen bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root == nil {
		return false, nil
	}
	if frozen, err = thaw(f.root); err != nil {
		return false, err // to be tried again
	}
	err = f.root.Close()
	f.root = nil
	return frozen, err
}

// Thaw lets the writers of a mounted image go on whose process died while it was
// frozen, and reports whether it was. One that is not frozen, and a directory on
// which none is mounted, stay as they are. Whoever dismantles calls it before the
// unmount, which would wait for ever.
func Thaw(at string) (frozen bool, err error) {
	f, err := open(at)
	if errors.Is(err, errNone) || errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return thaw(f)
}

func thaw(root *os.File) (frozen bool, err error) {
	switch err := unix.IoctlSetInt(int(root.Fd()), fithaw, 0); err {
	case nil:
		return true, nil
	case unix.EINVAL:
		return false, nil
	default:
		return false, fmt.Errorf("ioctl FITHAW of %s: %w", root.Name(), err)
	}
}

var errNone = errors.New("no image is mounted there")

// loopMajor is the number of the driver of loop devices.
const loopMajor = 7

// open opens the root of a mounted image, and nothing else: to freeze what lies
// below a directory on which none is mounted would freeze the host.
func open(at string) (*os.File, error) {
	f, err := os.OpenFile(at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st)
	if err == nil && (st.Dev_major != loopMajor || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0) {
		err = errNone
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at, err), f.Close())
	}
	return f, nil
}
