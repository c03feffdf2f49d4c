package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// importSaved reads a `docker save` archive that is not an OCI layout as well.
// It has no manifest, so we make one; its layers have no digests other than
// the configuration's diff_ids, which unpacking checks.
func (st *stage) importSaved(ctx context.Context, in files, r io.Reader, fallback string) (Image, error) {
	b, err := readDocument(r, "manifest.json")
	if err != nil {
		return Image{}, err
	}
	var m tarball.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Image{}, hostile("manifest.json", "not a docker save manifest", err)
	}
	if len(m) != 1 {
		return Image{}, &Error{Kind: ErrUnsupported, Entry: "manifest.json", Reason: "images", Expected: "1", Got: fmt.Sprint(len(m))}
	}
	one := m[0]
	if len(one.Layers) > MaxLayers {
		return Image{}, &Error{Kind: ErrTooLarge, Entry: "manifest.json", Reason: "layers", Expected: fmt.Sprint("at most ", MaxLayers), Got: fmt.Sprint(len(one.Layers))}
	}
	config, err := st.savedConfig(in, one.Config)
	if err != nil {
		return Image{}, err
	}
	var layers []v1.Descriptor
	left := st.store.opt.MaxBytes
	for _, name := range one.Layers {
		l, err := st.savedLayer(ctx, in, name, left)
		if err != nil {
			return Image{}, err
		}
		layers = append(layers, l)
		left -= l.Size
	}
	called := fallback
	for _, tag := range one.RepoTags {
		if r := repository(tag); r != "" {
			called = r
			break
		}
	}
	return st.assemble(ctx, config, layers, called)
}

// assemble publishes an image made of a configuration and layers that are
// staged already.
func (st *stage) assemble(ctx context.Context, config []byte, layers []v1.Descriptor, called string) (Image, error) {
	configHash, _, err := st.blob(ctx, bytes.NewReader(config), MaxDocumentBytes, nil)
	if err != nil {
		return Image{}, err
	}
	manifest, err := manifestOf(v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: configHash, Size: int64(len(config))}, layers)
	if err != nil {
		return Image{}, err
	}
	digest, size, err := st.blob(ctx, bytes.NewReader(manifest), MaxDocumentBytes, nil)
	if err != nil {
		return Image{}, err
	}
	parsed, err := parseManifest(manifest)
	if err != nil {
		return Image{}, err
	}
	img, err := describe(local(called)(digest), digest, size, parsed, config)
	if err != nil {
		return Image{}, err
	}
	return img.Image, st.publish(ctx, line(img.Reference, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}))
}

func (st *stage) savedConfig(in files, name string) ([]byte, error) {
	r, err := in.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readDocument(r, name)
}

func (st *stage) savedLayer(ctx context.Context, in files, name string, limit int64) (v1.Descriptor, error) {
	r, err := in.open(name)
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer r.Close()
	var magic [4]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return v1.Descriptor{}, err
	}
	h, size, err := st.blob(ctx, io.MultiReader(bytes.NewReader(magic[:n]), r), limit, func(int) {})
	if err != nil {
		return v1.Descriptor{}, err
	}
	st.store.report(Progress{Stage: "fetch", Detail: h.String(), Done: size, Total: size})
	return v1.Descriptor{MediaType: compressionOf(magic[:n]).layer(), Digest: h, Size: size}, nil
}

// repository is the path of an image name, without registry, tag and digest;
// "" if it is no name.
func repository(said string) string {
	ref, err := name.ParseReference(said, name.WithDefaultRegistry(""), name.WithDefaultTag("latest"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(ref.Context().RepositoryStr(), "library/")
}
