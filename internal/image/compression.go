package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compression is how a layer or an archive is packed. It is told from the
// first bytes: media types and file names are only claims.
type compression int

const (
	uncompressed compression = iota
	gzipped
	zstandard
)

// zstdMemory bounds what one frame may ask of memory; RFC 8878 recommends
// decoders to take windows of 8 MiB, and the highest levels use 128 MiB.
const zstdMemory = 128 << 20

func compressionOf(magic []byte) compression {
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzipped
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstandard
	}
	return uncompressed
}

func (c compression) layer() types.MediaType {
	switch c {
	case gzipped:
		return types.OCILayer
	case zstandard:
		return types.OCILayerZStd
	}
	return types.OCIUncompressedLayer
}

// decompress returns the plain bytes of r. Close frees the decoder, not r.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 256<<10)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch compressionOf(magic) {
	case gzipped:
		return gzip.NewReader(b)
	case zstandard:
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdMemory), zstd.WithDecoderMaxMemory(zstdMemory))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// malformed sorts an error met while archive bytes were read: what the decoder
// refuses is the archive's doing, all else the host's.
func malformed(entry string, err error) error {
	var host interface{ Timeout() bool } // os, net and system errors have it, decoders do not
	if _, ok := errors.AsType[*Error](err); ok || err == nil || errors.As(err, &host) || errors.Is(err, context.Canceled) {
		return err
	}
	return hostile(entry, "archive is truncated or damaged", err)
}
