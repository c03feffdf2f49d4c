package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// liveDir holds, beside the content of a snapshot, the files of a live checkpoint.
const liveDir = "live"

// maxLiveFiles bounds how many there are.
const maxLiveFiles = 16

// Live is what a snapshot has beside its content: the memory and processes of a
// machine, of the same moment. Its files are the runtime's own, and this package knows
// no more of them than their bytes.
type Live struct {
	// Identity is what the checkpoint is bound to, in the caller's words.
	Identity string     `json:"identity"`
	Files    []LiveFile `json:"files"` // in the order of their names
}

// LiveFile is one of them.
type LiveFile struct {
	Name       string  `json:"name"`
	Bytes      int64   `json:"bytes"`
	ChunkBytes int64   `json:"chunk_bytes"`
	Chunks     []Chunk `json:"chunks"` // as of a Manifest
}

// LiveSource is a live checkpoint to capture.
type LiveSource struct {
	Identity string
	// Dir holds its files and nothing else. It lies on the filesystem of the store,
	// which takes it over, whatever the outcome.
	Dir string
}

// takeLive moves the files of a checkpoint into the stage.
func (st *stage) takeLive(src *LiveSource) error {
	if src == nil {
		return nil
	}
	if err := os.Rename(src.Dir, filepath.Join(st.dir, liveDir)); err != nil {
		return err
	}
	st.s.opt.Step(st.op + ": live taken")
	return nil
}

// describeLive digests the files in the stage, and forces them to the disk.
func (st *stage) describeLive(ctx context.Context, identity string) (*Live, error) {
	dir, err := os.Open(filepath.Join(st.dir, liveDir))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := os.ReadDir(dir.Name()) // in the order of names
	if err != nil {
		return nil, err
	}
	live := &Live{Identity: identity, Files: []LiveFile{}}
	for _, e := range entries {
		f, err := openIn(dir, e.Name())
		if err != nil {
			return nil, err
		}
		one := LiveFile{Name: e.Name()}
		if err = f.Sync(); err == nil { // what is not written out may look like a hole
			one.Bytes, one.Chunks, err = digest(ctx, f)
		}
		one.ChunkBytes = chunkBytes(one.Bytes)
		if err = joined(err, f.Close()); err != nil {
			return nil, err
		}
		live.Files = append(live.Files, one)
	}
	if err := dir.Sync(); err != nil {
		return nil, err
	}
	st.s.opt.Step(st.op + ": live digested")
	return live, nil
}

// digest goes once over a file.
func digest(ctx context.Context, f *os.File) (int64, []Chunk, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, nil, err
	}
	chunks, err := pass{from: f, size: info.Size()}.run(ctx)
	if chunks == nil {
		chunks = []Chunk{}
	}
	return info.Size(), chunks, err
}

// check holds what a manifest says of a checkpoint to what describeLive can have said.
func (l *Live) check() error {
	if len(l.Files) == 0 || len(l.Files) > maxLiveFiles {
		return damaged("live.files", "1 to "+strconv.Itoa(maxLiveFiles), strconv.Itoa(len(l.Files)))
	}
	last := ""
	for i, f := range l.Files {
		field := "live.files[" + strconv.Itoa(i) + "]"
		if f.Name <= last || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." {
			return damaged(field+".name", "ascending names of files", f.Name)
		}
		if err := checkChunks(field+".", f.Bytes, f.ChunkBytes, f.Chunks); err != nil {
			return err
		}
		last = f.Name
	}
	return nil
}

// VerifyLive compares every byte of the live checkpoint with the manifest, and returns
// the directory in which it lies, as long as the snapshot does. Nobody but the store
// writes there.
// Errors: ErrNotFound where the snapshot has none, or was destroyed meanwhile;
// ErrDamaged with the file and the bytes that differ; host errors.
func (h *Hold) VerifyLive(ctx context.Context) (string, error) {
	path, err := h.verifyLive(ctx)
	return path, within("restore", string(h.Manifest.Snapshot.SnapshotID), err)
}

func (h *Hold) verifyLive(ctx context.Context) (string, error) {
	if h.Manifest.Live == nil {
		return "", &Error{Kind: ErrNotFound, Field: "live", Expected: "a live checkpoint", Got: "files alone"}
	}
	for _, want := range h.Manifest.Live.Files {
		f, err := h.openLive(want.Name)
		if err != nil {
			return "", err
		}
		size, got, err := digest(ctx, f)
		if err = joined(err, f.Close()); err != nil {
			return "", err
		}
		if size != want.Bytes {
			return "", damaged("live "+want.Name+" bytes", strconv.FormatInt(want.Bytes, 10), strconv.FormatInt(size, 10))
		}
		if err := want.compare(got); err != nil {
			return "", err
		}
	}
	if !h.s.published(h.dir, h.Manifest.Snapshot.SnapshotID) {
		return "", &Error{Kind: ErrNotFound}
	}
	h.s.opt.Step("restore: live verified")
	return h.s.path("snapshots", string(h.Manifest.Snapshot.SnapshotID), liveDir), nil
}

// openLive opens one file of the checkpoint.
func (h *Hold) openLive(name string) (*os.File, error) {
	fd, err := unix.Openat(int(h.dir.Fd()), liveDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	var f *os.File
	if err == nil {
		dir := os.NewFile(uintptr(fd), liveDir)
		f, err = openIn(dir, name)
		err = joined(err, dir.Close())
	}
	if errors.Is(err, os.ErrNotExist) {
		err = damaged("live "+name, "a file", "none")
	}
	return f, err
}

// cloneLive gives a clone the checkpoint of its source: by more names of its files,
// else by copies that are compared.
func (st *stage) cloneLive(ctx context.Context, h *Hold) error {
	if h.Manifest.Live == nil {
		return nil
	}
	path := filepath.Join(st.dir, liveDir)
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	for _, want := range h.Manifest.Live.Files {
		from, err := h.openLive(want.Name)
		if err != nil {
			return err
		}
		err = cloneFile(ctx, from, filepath.Join(path, want.Name), want)
		if err = joined(err, from.Close()); err != nil {
			return err
		}
	}
	st.s.opt.Step(st.op + ": live cloned")
	return syncDir(path)
}

func cloneFile(ctx context.Context, from *os.File, path string, want LiveFile) (err error) {
	linked := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(from.Fd())), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if linked == nil {
		return nil // nobody writes to what is published, and it is on the disk
	}
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = joined(err, to.Close()) }()
	got, err := pass{from: from, size: want.Bytes, to: to, soon: true}.run(ctx)
	if err == nil {
		err = want.compare(got)
	}
	if err == nil {
		err = to.Sync()
	}
	return err
}

// compare names the first stretch of a file that differs from what was kept.
func (f LiveFile) compare(got []Chunk) error {
	m := Manifest{ContentBytes: f.Bytes, ChunkBytes: f.ChunkBytes, Chunks: f.Chunks}
	err := m.compare(got)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Field = "live " + f.Name + " " + e.Field
	}
	return err
}

// liveBytes is what the disk gives the checkpoint of an open snapshot.
func liveBytes(dir *os.File, live *Live) (n int64) {
	if live == nil {
		return 0
	}
	for _, f := range live.Files {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), liveDir+"/"+f.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			n += st.Blocks * 512
		}
	}
	return n
}
