package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// source is where the blobs of an image come from: a layout or a registry. It
// is not trusted; every blob is checked against its descriptor.
type source interface {
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// bring copies the image that d describes from src and publishes it. name
// gives the reference once the digest is known. The caller holds import.lock.
func (st *stage) bring(ctx context.Context, src source, d v1.Descriptor, name func(v1.Hash) string) (Image, error) {
	d, m, err := st.manifest(ctx, src, d)
	if err != nil {
		return Image{}, err
	}
	config, err := st.fetchDocument(ctx, src, m.Config)
	if err != nil {
		return Image{}, err
	}
	img, err := describe(name(d.Digest), d.Digest, d.Size, m, config)
	if err != nil {
		return Image{}, err
	}
	if img.Size > st.store.opt.MaxBytes {
		return Image{}, &Error{Kind: ErrTooLarge, Reason: "image", Expected: fmt.Sprint("at most ", st.store.opt.MaxBytes, " bytes"), Got: fmt.Sprint(img.Size)}
	}
	done := d.Size + m.Config.Size
	for _, l := range m.Layers {
		if st.has(l.Digest) {
			done += l.Size
			continue
		}
		err := st.fetch(ctx, src, l, func(n int) {
			done += int64(n)
			st.store.report(Progress{Stage: "fetch", Detail: l.Digest.String(), Done: done, Total: img.Size})
		})
		if err != nil {
			return Image{}, err
		}
	}
	return img.Image, st.publish(ctx, line(img.Reference, d))
}

// line is what the store's index says of one image.
func line(ref string, d v1.Descriptor) v1.Descriptor {
	return v1.Descriptor{
		MediaType:   d.MediaType,
		Digest:      d.Digest,
		Size:        d.Size,
		Platform:    &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Annotations: map[string]string{refAnnotation: ref},
	}
}

// has reports whether a blob is in the store or already staged.
func (st *stage) has(h v1.Hash) bool {
	for _, a := range st.added {
		if a == h {
			return true
		}
	}
	_, err := os.Lstat(st.store.blobPath(h))
	return err == nil
}

// manifest follows indexes from d to the one image for this host and stages
// its manifest. Indexes are not kept.
func (st *stage) manifest(ctx context.Context, src source, d v1.Descriptor) (v1.Descriptor, *v1.Manifest, error) {
	for range maxIndexDepth {
		if err := checkDescriptor(d); err != nil {
			return d, nil, err
		}
		b, err := getDocument(ctx, src, d)
		if err != nil {
			return d, nil, err
		}
		// The media type of the line above is a claim; an index that is
		// called a manifest must not be read as one, nor the other way round.
		kind, err := mediaType(b, d.MediaType)
		if err != nil {
			return d, nil, err
		}
		if kind.IsImage() {
			m, err := parseManifest(b)
			if err != nil {
				return d, nil, err
			}
			d.MediaType, d.Size = kind, int64(len(b))
			_, _, err = st.blob(ctx, bytes.NewReader(b), MaxDocumentBytes, nil)
			return d, m, err
		}
		index, err := parseIndex(b)
		if err != nil {
			return d, nil, err
		}
		if d, err = choose(index); err != nil {
			return d, nil, err
		}
	}
	return d, nil, hostile("index", "indexes point to indexes too deep", nil)
}

func mediaType(b []byte, claimed types.MediaType) (types.MediaType, error) {
	var said struct {
		MediaType types.MediaType   `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
		Layers    []json.RawMessage `json:"layers"`
	}
	if err := json.Unmarshal(b, &said); err != nil {
		return "", hostile("manifest", "not JSON", err)
	}
	if said.MediaType == "" {
		said.MediaType = claimed
	}
	// OCI documents may leave their type out, and a registry is asked for a
	// digest without knowing what it is.
	if said.MediaType == "" && said.Manifests != nil {
		said.MediaType = types.OCIImageIndex
	} else if said.MediaType == "" {
		said.MediaType = types.OCIManifestSchema1
	}
	if claimed != "" && said.MediaType != claimed || said.Manifests != nil && said.Layers != nil {
		return "", hostile("manifest", "mediaType is ambiguous", fmt.Errorf("%q and %q", claimed, said.MediaType))
	}
	if !said.MediaType.IsImage() && !said.MediaType.IsIndex() {
		return "", &Error{Kind: ErrUnsupported, Entry: "manifest", Reason: "media type", Got: string(said.MediaType)}
	}
	return said.MediaType, nil
}

// fetchDocument stages a small blob and returns its bytes.
func (st *stage) fetchDocument(ctx context.Context, src source, d v1.Descriptor) ([]byte, error) {
	b, err := getDocument(ctx, src, d)
	if err != nil {
		return nil, err
	}
	_, _, err = st.blob(ctx, bytes.NewReader(b), MaxDocumentBytes, nil)
	return b, err
}

func getDocument(ctx context.Context, src source, d v1.Descriptor) ([]byte, error) {
	r, err := src.blob(ctx, d)
	if err != nil {
		return nil, absent(d, err)
	}
	defer r.Close()
	b, err := readDocument(r, d.Digest.String())
	if err != nil {
		return nil, err
	}
	return b, matches(b, d.Digest)
}

// fetch stages one layer and refuses any but the promised bytes.
func (st *stage) fetch(ctx context.Context, src source, d v1.Descriptor, progress func(int)) error {
	r, err := src.blob(ctx, d)
	if err != nil {
		return absent(d, err)
	}
	defer r.Close()
	h, n, err := st.blob(ctx, r, d.Size, progress)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Entry == "" {
			e.Entry = d.Digest.String()
		}
		return err
	}
	if h != d.Digest {
		return &Error{Kind: ErrDigestMismatch, Entry: d.Digest.String(), Expected: d.Digest.String(), Got: h.String()}
	}
	if n != d.Size {
		return hostile(d.Digest.String(), "size is not the descriptor's", fmt.Errorf("%d bytes, %d promised", n, d.Size))
	}
	return nil
}

func absent(d v1.Descriptor, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Kind: ErrNotFound, Entry: d.Digest.String(), Reason: "blob is missing", Err: err}
	}
	return err
}
