package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// blobs reads objects through one "cat-file --batch", which applies no filter
// and no textconv. It starts with the first read and ends with Close.
type blobs struct {
	git    *git
	dir    string
	env    []string
	format string

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
	buf *bufio.Reader
	err error // the process cannot be used any more
}

// blobTimeout bounds the read of one blob of at most MaxFile bytes.
const blobTimeout = time.Minute

// read returns a blob of at most MaxFile bytes.
func (b *blobs) read(oid string) ([]byte, error) { return b.object("blob", oid) }

// object returns an object of at most MaxFile bytes that is of this type and
// hashes to its id: git itself believes the index of a pack.
func (b *blobs) object(kind, oid string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && b.cmd == nil {
		b.err = b.start()
	}
	if b.err != nil {
		return nil, b.err
	}
	data, err := b.request(kind, oid)
	if err != nil {
		b.err = fmt.Errorf("git cat-file: %w", err)
		b.stop()
	}
	return data, err
}

func (b *blobs) start() error {
	// The process outlives the call that planned the mount.
	b.cmd = b.git.command(context.Background(), b.dir, b.env, "cat-file", "--batch")
	var err error
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		return err
	}
	if b.out, err = b.cmd.StdoutPipe(); err != nil {
		return err
	}
	b.buf = bufio.NewReaderSize(b.out, 64<<10)
	return b.cmd.Start()
}

func (b *blobs) request(want, oid string) ([]byte, error) {
	if f, ok := b.out.(*os.File); ok {
		if err := f.SetReadDeadline(time.Now().Add(blobTimeout)); err != nil {
			return nil, err
		}
	}
	if _, err := io.WriteString(b.in, oid+"\n"); err != nil {
		return nil, err
	}
	line, err := b.buf.ReadString('\n')
	if err != nil {
		return nil, err
	}
	got, kind, size, err := parseBatch(line)
	if err != nil {
		return nil, err
	}
	if got != oid || kind != want || size > MaxFile {
		return nil, fmt.Errorf("want %s %s of at most %d bytes, got %q", want, oid, MaxFile, clip(line))
	}
	data := make([]byte, size+1)
	if _, err := io.ReadFull(b.buf, data); err != nil {
		return nil, err
	}
	if data = data[:size]; objectID(b.format, kind, data) != oid {
		return nil, fmt.Errorf("%s %s holds other bytes than its id says", kind, oid)
	}
	return data, nil
}

func (b *blobs) stop() {
	if b.cmd == nil || b.cmd.Process == nil {
		return
	}
	b.in.Close()
	b.cmd.Process.Kill()
	b.cmd.Wait() // it was killed, so its status says nothing
	b.cmd = nil
}

// Close ends the process.
func (b *blobs) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop()
	b.err = errors.New("plan is closed")
	return nil
}

// parseBatch reads "<oid> <type> <size>\n"; for "<oid> missing\n" the kind is
// "missing" and the size 0.
func parseBatch(line string) (oid, kind string, size int64, err error) {
	f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
	switch {
	case len(f) == 2 && validOID(f[0]) && f[1] == "missing":
		return f[0], f[1], 0, nil
	case len(f) == 3 && validOID(f[0]):
		n, err := strconv.ParseUint(f[2], 10, 63)
		return f[0], f[1], int64(n), err
	}
	return "", "", 0, fmt.Errorf("answer of cat-file: want id, type and size, got %q", clip(line))
}

// sizes returns the size of every blob; one that is missing, or no blob, has
// no entry.
func (r *repository) sizes(ctx context.Context, oids map[string]bool) (map[string]int64, error) {
	var in strings.Builder
	for oid := range oids {
		in.WriteString(oid + "\n")
	}
	sizes := make(map[string]int64, len(oids))
	err := r.git.stream(ctx, r.view, r.env, strings.NewReader(in.String()), func(out *bufio.Reader) error {
		for {
			line, err := out.ReadString('\n')
			if err == io.EOF && line == "" {
				return nil
			}
			if err != nil {
				return err
			}
			oid, kind, size, err := parseBatch(line)
			if err != nil {
				return err
			}
			if kind == "blob" {
				sizes[oid] = size
			}
		}
	}, "cat-file", "--batch-check", "--buffer")
	return sizes, err
}
