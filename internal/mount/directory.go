package mount

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// DirOptions says how a plain directory becomes a mount.
type DirOptions struct {
	Dir   string
	Links bool // the caller stages Plan.Links, so they are no skips
}

// Directory plans a mount of a plain directory. No link is followed; a .git
// in it is left out, because its configuration can hold credentials.
// Empty directories are recorded by name.
//
// Errors: *Error; its cause is ErrTooMany past MaxEntries.
// Blocks: while it reads every file once; ends when ctx does.
func Directory(ctx context.Context, o DirOptions) (*Plan, error) {
	t, err := openTree(o.Dir)
	if err != nil {
		return nil, &Error{Op: "directory", Path: o.Dir, Reason: "not a directory that can be read", Err: errors.Unwrap(err)}
	}
	p := &Plan{Counts: map[Reason]int{}, leftOut: map[string]Reason{}, linksStaged: o.Links, format: "sha1", close: []io.Closer{t}}
	if err := p.walk(ctx, t, o.Dir); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	sortPlan(p)
	p.Summary = p.summarize("directory")
	return p, nil
}

// walk goes through the tree with a stack of its own: a hostile depth costs
// memory for its names and no descriptors.
func (p *Plan) walk(ctx context.Context, t *tree, dir string) error {
	stack := []string{""}
	for len(stack) > 0 {
		if err := ctx.Err(); err != nil {
			return &Error{Op: "directory", Path: dir, Reason: "interrupted", Err: err}
		}
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		names, reason, err := t.names(at)
		if err != nil {
			return &Error{Op: "directory", Path: dir, Reason: "cannot list " + printable(at), Err: err}
		}
		if reason != "" {
			p.skip(at+"/", reason)
			continue
		}
		if len(names) == 0 && at != "" {
			p.skip(at+"/", EmptyDir)
		}
		for _, name := range names {
			path := name
			if at != "" {
				path = at + "/" + name
			}
			isDir, err := p.visit(ctx, t, path)
			if err != nil {
				return err
			}
			if isDir {
				stack = append(stack, path)
			}
			if len(p.Files)+len(p.Links)+len(p.leftOut)+len(stack) > MaxEntries {
				return tooMany("directory", dir)
			}
		}
	}
	return nil
}

// names lists a directory, or says why it cannot.
func (t *tree) names(path string) ([]string, Reason, error) {
	if path == "" {
		path = "."
	}
	fd, err := t.openat(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, Unreadable, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, "", fmt.Errorf("directory was replaced while it was read: %w", ErrChanged)
	case err != nil:
		return nil, "", err
	}
	d := os.NewFile(uintptr(fd), path)
	defer d.Close()
	var names []string
	for {
		some, err := d.Readdirnames(4096)
		names = append(names, some...)
		if len(names) > MaxEntries {
			return nil, "", ErrTooMany
		}
		if err == io.EOF {
			slices.Sort(names)
			return names, "", nil
		}
		if err != nil {
			return nil, "", err
		}
	}
}

func (p *Plan) visit(ctx context.Context, t *tree, path string) (isDir bool, err error) {
	switch {
	case !admitted(path): // deeper than the kernel's longest path
		p.skip(path, UnsafePath)
		return false, nil
	case Reserved(path):
		reason := UnsafePath
		if path == ".git" || strings.HasSuffix(path, "/.git") {
			reason = Nested
		}
		p.skip(path, reason)
		return false, nil
	}
	n, err := t.open(path)
	if err != nil {
		return false, &Error{Op: "directory", Path: path, Reason: "cannot open", Err: err}
	}
	switch n.kind {
	case directory:
		return true, nil
	case symlink:
		p.link(Link{path, n.target})
	case special:
		p.skip(path, Special)
	case unreadable:
		p.skip(path, Unreadable)
	case absent, behindLink: // it went while we looked: nothing to stage
		p.skip(path, Missing)
	case regular:
		defer n.file.Close()
		if n.size > MaxFile {
			p.skip(path, TooLarge)
			return false, nil
		}
		f, data, err := readFile(ctx, n, path)
		if err != nil {
			return false, &Error{Op: "directory", Path: path, Reason: "cannot read", Err: err}
		}
		f.open = func() (io.ReadCloser, error) { return t.reader(path) }
		if isLFSPointer(data) {
			p.skip(path, LFSPointer)
		}
		p.add(f)
	}
	return false, nil
}

func (p *Plan) add(f File) {
	p.Files = append(p.Files, f)
	p.Bytes += f.Size
}

// readFile digests an opened file and returns its bytes, at most MaxFile.
func readFile(ctx context.Context, n node, path string) (File, []byte, error) {
	if err := ctx.Err(); err != nil {
		return File{}, nil, err
	}
	data := make([]byte, n.size, n.size+1)
	got, err := io.ReadFull(n.file, data)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return File{}, nil, err
	}
	data = data[:got]
	if more, _ := n.file.Read(data[got : got+1][:1]); more > 0 || int64(got) != n.size {
		return File{}, nil, fmt.Errorf("size changed while it was read: %w", ErrChanged)
	}
	sum := sha256.Sum256(data)
	return File{Path: path, Executable: n.executable, Size: n.size, Digest: fmt.Sprintf("sha256:%x", sum)}, data, nil
}
