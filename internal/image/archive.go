package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// files are the named regular files of an archive or a directory. open gives
// fs.ErrNotExist for a name that is not there.
type files interface {
	open(name string) (io.ReadCloser, error)
	close() error
}

// Import brings in the image of an OCI layout (a directory, or a tar of one)
// or of a `docker save` tar. Tars may be compressed with gzip or zstd. The
// image is known afterwards as LocalDomain/NAME@DIGEST, where NAME is what the
// archive calls it, without registry and tag, or else the file's base name.
// Layers of a `docker save` tar are kept as they are, so its digest depends on
// the archive alone. Importing the same image again changes nothing.
//
// Blocks: while another process imports into the same store, until ctx is done.
// Errors: ErrHostile, ErrDigestMismatch, ErrTooLarge, ErrPlatform, ErrNotFound
// (a part is missing), ErrUnsupported (several images; an unknown format). A
// failed import leaves the store as it was.
func (s *Store) Import(ctx context.Context, path string) (Image, error) {
	img, err := s.importPath(ctx, path)
	if err != nil {
		return Image{}, within("import", path, err)
	}
	return img, nil
}

func (s *Store) importPath(ctx context.Context, from string) (_ Image, err error) {
	unlock, err := s.lock(ctx, "import.lock")
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	st, err := s.stage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = joined(err, st.close()) }()
	in, err := st.openFiles(ctx, from)
	if err != nil {
		return Image{}, err
	}
	defer in.close()

	fallback := repository(strings.SplitN(path.Base(from), ".", 2)[0])
	if fallback == "" {
		fallback = "image"
	}
	if index, err := in.open(indexFile); err == nil {
		defer index.Close()
		return st.importLayout(ctx, in, index, fallback)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Image{}, err
	}
	if manifest, err := in.open("manifest.json"); err == nil {
		defer manifest.Close()
		return st.importSaved(ctx, in, manifest, fallback)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Image{}, err
	}
	return Image{}, &Error{Kind: ErrUnsupported, Reason: "neither an OCI layout nor a docker save archive", Expected: indexFile + " or manifest.json"}
}

func (st *stage) importLayout(ctx context.Context, in files, r io.Reader, fallback string) (Image, error) {
	b, err := readDocument(r, indexFile)
	if err != nil {
		return Image{}, err
	}
	index, err := parseIndex(b)
	if err != nil {
		return Image{}, err
	}
	d, err := choose(index)
	if err != nil {
		return Image{}, err
	}
	name := fallback
	// The ref.name annotation is a bare tag as often as a name.
	for _, said := range []string{d.Annotations["io.containerd.image.name"], d.Annotations[refAnnotation]} {
		if strings.ContainsAny(said, "/:") && repository(said) != "" {
			name = repository(said)
			break
		}
	}
	return st.bring(ctx, layoutSource{in}, d, local(name))
}

func local(name string) func(v1.Hash) string {
	return func(h v1.Hash) string { return LocalDomain + "/" + name + "@" + h.String() }
}

type layoutSource struct{ files }

func (l layoutSource) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return l.open("blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex)
}

// openFiles looks at what kind of thing lies at from.
func (st *stage) openFiles(ctx context.Context, from string) (files, error) {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Kind: ErrNotFound, Reason: "no such file", Err: err}
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(from)
		if err != nil {
			return nil, err
		}
		return directory{root}, nil
	}
	// A FIFO in the place of the file must not block us.
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(&Error{Kind: ErrUnsupported, Reason: "not a regular file"}, err)
	}
	plain, err := st.plain(ctx, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	if plain != f {
		f.Close()
	}
	t, err := scan(ctx, plain)
	if err != nil {
		plain.Close()
		return nil, err
	}
	return t, nil
}

// plain returns f, or a decompressed copy of it in the stage, so that every
// member can be read in place.
func (st *stage) plain(ctx context.Context, f *os.File) (*os.File, error) {
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil && err != io.EOF {
		return nil, err
	}
	if compressionOf(magic[:]) == uncompressed {
		return f, nil
	}
	z, err := decompress(f)
	if err != nil {
		return nil, hostile("", "compressed archive", err)
	}
	defer z.Close()
	out, err := os.CreateTemp(st.dir, "archive-")
	if err != nil {
		return nil, err
	}
	left := st.store.opt.MaxBytes
	n, err := copyContext(ctx, out, io.LimitReader(z, left+1))
	if err == nil && n > left {
		err = &Error{Kind: ErrTooLarge, Reason: "archive, decompressed", Expected: fmt.Sprint("at most ", left, " bytes")}
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// directory reads an OCI layout in place; os.Root keeps links inside it.
type directory struct{ root *os.Root }

func (d directory) open(name string) (io.ReadCloser, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(hostile(name, "not a regular file", nil), err)
	}
	return f, nil
}

func (d directory) close() error { return d.root.Close() }

// archive is a tar whose members are read where they lie.
type archive struct {
	file    *os.File
	members map[string]member
}

type member struct {
	offset, size int64
	link         string // another member's name
}

func (a *archive) close() error { return a.file.Close() }

// open follows links between members, as older `docker save` archives have
// them for layers that occur twice. No link ever touches the file system.
func (a *archive) open(name string) (io.ReadCloser, error) {
	for range 8 {
		m, ok := a.members[path.Clean(name)]
		if !ok {
			return nil, &Error{Kind: ErrNotFound, Entry: name, Reason: "not in the archive", Err: fs.ErrNotExist}
		}
		if m.link == "" {
			return io.NopCloser(io.NewSectionReader(a.file, m.offset, m.size)), nil
		}
		name = m.link
	}
	return nil, hostile(name, "links lead in a circle", nil)
}

// scan notes where each member of a tar begins.
func scan(ctx context.Context, f *os.File) (*archive, error) {
	a := &archive{file: f, members: map[string]member{}}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	t := tar.NewReader(f)
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := t.Next()
		if err == io.EOF {
			return a, nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return nil, hostile("", "not a tar archive", err)
		}
		if n >= maxMembers {
			return nil, &Error{Kind: ErrTooLarge, Reason: "members of the archive", Expected: fmt.Sprint("at most ", maxMembers)}
		}
		name := path.Clean("/" + h.Name)[1:]
		var m member
		switch h.Typeflag {
		case tar.TypeReg:
			if sparse(h) {
				return nil, hostile(h.Name, "sparse member", nil)
			}
			// The reader takes whole blocks from the file and nothing ahead
			// of the member's data.
			if m.offset, err = f.Seek(0, io.SeekCurrent); err != nil {
				return nil, err
			}
			m.size = h.Size
		case tar.TypeSymlink:
			m.link = path.Clean("/" + path.Join(path.Dir(name), h.Linkname))[1:]
		case tar.TypeLink:
			m.link = path.Clean("/" + h.Linkname)[1:]
		default:
			continue
		}
		// Two members of one name are two readings of one archive.
		if _, ok := a.members[name]; ok {
			return nil, hostile(h.Name, "member occurs twice", nil)
		}
		a.members[name] = m
	}
}

func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// copyContext is io.Copy that gives up when ctx is done.
func copyContext(ctx context.Context, w io.Writer, r io.Reader) (int64, error) {
	var total int64
	for {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		n, err := io.CopyN(w, r, 4<<20)
		total += n
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, malformed("", err)
		}
	}
}
