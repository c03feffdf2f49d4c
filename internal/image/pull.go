package image

import (
	"bytes"
	"context"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Pull fetches an image from a registry, without credentials. The reference
// must carry a digest: a tag is somebody else's to move. If the digest is that
// of an index, the image for this host is chosen from it. An image that the
// store has under this reference is not fetched again.
//
// Blocks: on the network and while another process imports, until ctx is done.
// Errors: ErrUnsupported (no digest), ErrDigestMismatch, ErrPlatform,
// ErrTooLarge, ErrHostile; without a kind when the registry does not answer. A
// failed pull leaves the store as it was.
func (s *Store) Pull(ctx context.Context, refAtDigest string) (Image, error) {
	img, err := s.pull(ctx, refAtDigest)
	if err != nil {
		return Image{}, within("pull", refAtDigest, err)
	}
	return img, nil
}

func (s *Store) pull(ctx context.Context, ref string) (_ Image, err error) {
	digest, err := name.NewDigest(ref)
	if err != nil {
		return Image{}, &Error{Kind: ErrUnsupported, Reason: "reference", Expected: "NAME@sha256:HEX", Err: err}
	}
	unlock, err := s.lock(ctx, "import.lock")
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if img, err := s.pulled(ctx, ref); img != nil || err != nil {
		return *img, err
	}
	st, err := s.stage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = joined(err, st.close()) }()
	h, err := v1.NewHash(digest.DigestStr())
	if err != nil {
		return Image{}, &Error{Kind: ErrUnsupported, Reason: "digest", Err: err}
	}
	return st.bring(ctx, registrySource{digest.Context()}, v1.Descriptor{Digest: h}, func(v1.Hash) string { return ref })
}

// pulled looks for an image that has just this reference.
func (s *Store) pulled(ctx context.Context, ref string) (*Image, error) {
	all, err := s.all(ctx)
	if err != nil {
		return &Image{}, err
	}
	for _, one := range all {
		if one.Reference == ref {
			return &one.Image, nil
		}
	}
	return nil, nil
}

type registrySource struct{ repo name.Repository }

func (r registrySource) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	at := r.repo.Digest(d.Digest.String())
	// The first descriptor comes without a type: it and what an index lists
	// are manifests, the rest are blobs.
	if d.MediaType == "" || d.MediaType.IsImage() || d.MediaType.IsIndex() {
		got, err := remote.Get(at, remote.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(got.Manifest)), nil
	}
	l, err := remote.Layer(at, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return l.Compressed()
}
