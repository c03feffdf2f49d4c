package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

func digestOf(data []byte) sandbox.Digest {
	sum := sha256.Sum256(data)
	return sandbox.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// WriteFile sends one file. The content is not copied and must not change
// before it returns.
func (c *Client) WriteFile(ctx context.Context, id sandbox.InstanceID, w sandbox.FileWrite) error {
	k, err := c.newFramedCall(wire.WriteFile, c.leases.of(id), wire.FileCall{
		InstanceID: id, Path: w.Path, Size: int64(len(w.Content)), Digest: digestOf(w.Content),
		Executable: w.Executable, Symlink: w.Symlink,
	}, w.Content)
	if err != nil {
		if errors.Is(err, &wire.Error{Tag: wire.TagPayloadTooLarge}) {
			return sandbox.TooLarge(sandbox.OpWriteFile, w.Path, sandbox.MaxFileBytes)
		}
		return err
	}
	return c.do(ctx, k, settled)
}

// ReadFile reads one file, whose size and digest are as the result frame says.
func (c *Client) ReadFile(ctx context.Context, id sandbox.InstanceID, r sandbox.FileRead) ([]byte, error) {
	k, err := c.newCall(wire.ReadFile, c.leases.of(id), wire.ReadFileRequest{
		InstanceID: id, Path: r.Path, AllowedRoot: r.AllowedRoot, MaximumBytes: r.MaximumBytes,
	})
	if err != nil {
		return nil, err
	}
	var content []byte
	err = c.do(ctx, k, func(b *body) error {
		content = []byte{}
		sum := wire.NewDigester() // as it comes, while the other side goes on sending
		return frames(b, func(f wire.Frame) (bool, error) {
			switch f.Type {
			case wire.TypeData:
				content = extend(content, f.Payload, b.response.ContentLength)
				sum.Add(content[len(content)-len(f.Payload):])
				return false, nil
			case wire.TypeResult:
				r, err := wire.Decode[wire.FileResult](f.Payload)
				if err != nil {
					return true, err
				}
				return true, whole(b.endpoint, content, sum, r.Size, r.Digest)
			}
			return false, unexpected(f)
		})
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}

// extend appends, doubling: append alone grows large slices by a quarter, and
// leaves four times as much garbage. Expect is how many bytes were announced, or
// no more than 0: room for them is made once a sixteenth of them is here, and
// for no more than a file may have, because a length is only what somebody says.
func extend(b, data []byte, expect int64) []byte {
	if need := len(b) + len(data); need > cap(b) {
		room := max(need, 2*cap(b))
		if expect > int64(need) {
			room = max(need, int(min(expect, 16*int64(need), sandbox.MaxFileBytes)))
		}
		b = slices.Grow(b, room-len(b))
	}
	return append(b, data...)
}

// whole holds what came to what was announced.
func whole(e wire.Endpoint, content []byte, sum *wire.Digester, size int64, digest sandbox.Digest) error {
	if int64(len(content)) != size {
		return broken(e, "size", strconv.Itoa(len(content))+", which came", strconv.FormatInt(size, 10))
	}
	if got := sum.Digest(); got != digest {
		return broken(e, "digest", string(got)+", of what came", string(digest))
	}
	return nil
}

// ReadFiles reads a batch. Beside the results themselves it needs the memory of
// the longest single file.
func (c *Client) ReadFiles(ctx context.Context, id sandbox.InstanceID, r sandbox.FilesRead) ([]sandbox.FileResult, error) {
	k, err := c.newCall(wire.ReadFiles, c.leases.of(id), wire.ReadFilesRequest{
		InstanceID: id, AllowedRoot: r.AllowedRoot, Files: r.Files, AggregateMaximumBytes: r.AggregateMaximumBytes,
	})
	if err != nil {
		return nil, err
	}
	var results []sandbox.FileResult
	err = c.do(ctx, k, func(b *body) error {
		batch := batch{endpoint: b.endpoint, wanted: len(r.Files), sum: wire.NewDigester()}
		err := frames(b, batch.take)
		results = batch.results
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// batch puts a batch together, file by file in the order of the request.
type batch struct {
	endpoint wire.Endpoint
	wanted   int
	results  []sandbox.FileResult
	current  []byte         // data of the file that has no item yet; reused
	sum      *wire.Digester // of current
	total    int64
}

func (b *batch) take(f wire.Frame) (done bool, err error) {
	switch f.Type {
	case wire.TypeData:
		if len(b.results) == b.wanted {
			return false, broken(b.endpoint, "data", "a result after the last file", "more data")
		}
		if len(b.current)+len(f.Payload) > sandbox.MaxFileBytes {
			return false, broken(b.endpoint, "data", "at most 16 MiB of one file", "more")
		}
		b.current = extend(b.current, f.Payload, 0)
		b.sum.Add(b.current[len(b.current)-len(f.Payload):])
		return false, nil
	case wire.TypeItem:
		item, err := wire.Decode[wire.FileItem](f.Payload)
		if err != nil {
			return false, err
		}
		return false, b.item(item)
	case wire.TypeResult:
		r, err := wire.Decode[wire.FilesResult](f.Payload)
		if err != nil {
			return true, err
		}
		if r.Count != int64(b.wanted) || len(b.results) != b.wanted || len(b.current) > 0 {
			return true, broken(b.endpoint, "count", strconv.Itoa(b.wanted)+" items", strconv.Itoa(len(b.results))+", announced as "+strconv.FormatInt(r.Count, 10))
		}
		if r.TotalBytes != b.total {
			return true, broken(b.endpoint, "total_bytes", strconv.FormatInt(b.total, 10)+", which came", strconv.FormatInt(r.TotalBytes, 10))
		}
		return true, nil
	}
	return false, unexpected(f)
}

func (b *batch) item(i wire.FileItem) error {
	if i.Index != int64(len(b.results)) || len(b.results) == b.wanted {
		return broken(b.endpoint, "index", strconv.Itoa(len(b.results)), strconv.FormatInt(i.Index, 10))
	}
	if i.Status == wire.ItemRefused {
		if len(b.current) > 0 {
			return broken(b.endpoint, "data", "none of a file that was refused", strconv.Itoa(len(b.current))+" bytes")
		}
		b.results = append(b.results, sandbox.FileResult{Refused: i.Reason})
		return nil
	}
	if err := whole(b.endpoint, b.current, b.sum, *i.Size, i.Digest); err != nil {
		return err
	}
	// Exactly as long as the file: the next one grows in the same place.
	content := make([]byte, len(b.current))
	copy(content, b.current)
	b.results = append(b.results, sandbox.FileResult{Content: content})
	b.total += int64(len(content))
	b.current = b.current[:0]
	b.sum.Reset()
	return nil
}
