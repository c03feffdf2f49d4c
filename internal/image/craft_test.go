package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// e is one entry of a crafted layer. Fields as in tar.Header.
type e struct {
	name  string
	kind  byte // tar.TypeReg if 0
	link  string
	body  string
	mode  int64 // 0644 or 0755 if 0
	uid   int
	extra func(*tar.Header)
}

func layerOf(t testing.TB, entries ...e) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, one := range entries {
		h := &tar.Header{Name: one.name, Typeflag: one.kind, Linkname: one.link, Mode: one.mode, Uid: one.uid, Size: int64(len(one.body))}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if one.extra != nil {
			one.extra(h)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(one.name, err)
		}
		if _, err := w.Write([]byte(one.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// crafted is an OCI layout in memory, to be spoilt before it is written.
type crafted struct {
	config   v1.ConfigFile
	manifest v1.Manifest
	index    v1.IndexManifest
	blobs    map[string][]byte // by hex
	others   map[string][]byte // further files, by name
}

// craft makes an image of the given layers; compress may be nil.
func craft(t testing.TB, compress func([]byte) []byte, layers ...[]byte) *crafted {
	t.Helper()
	c := &crafted{blobs: map[string][]byte{}, others: map[string][]byte{}}
	c.config = v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}}
	c.manifest = v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, l := range layers {
		c.config.RootFS.DiffIDs = append(c.config.RootFS.DiffIDs, digestOf(l))
		media := types.OCIUncompressedLayer
		if compress != nil {
			l = compress(l)
			media = compressionOf(l).layer()
		}
		c.manifest.Layers = append(c.manifest.Layers, c.blob(media, l))
	}
	c.seal(t)
	return c
}

func (c *crafted) blob(media types.MediaType, b []byte) v1.Descriptor {
	h := digestOf(b)
	c.blobs[h.Hex] = b
	return v1.Descriptor{MediaType: media, Digest: h, Size: int64(len(b))}
}

// seal makes the documents anew from their fields.
func (c *crafted) seal(t testing.TB) {
	t.Helper()
	c.manifest.Config = c.blob(types.OCIConfigJSON, encode(t, c.config))
	c.index = v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{c.blob(types.OCIManifestSchema1, encode(t, c.manifest))}}
}

func (c *crafted) digest() string { return c.index.Manifests[0].Digest.String() }

func (c *crafted) files(t testing.TB) map[string][]byte {
	all := map[string][]byte{layoutFile: []byte(layoutContent), indexFile: encode(t, c.index)}
	for hex, b := range c.blobs {
		all["blobs/sha256/"+hex] = b
	}
	for name, b := range c.others {
		all[name] = b
	}
	return all
}

// directory and archive write the layout.
func (c *crafted) directory(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "crafted")
	for name, b := range c.files(t) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (c *crafted) archive(t testing.TB) []byte {
	t.Helper()
	var entries []e
	for name, b := range c.files(t) {
		entries = append(entries, e{name: "./" + name, body: string(b)})
	}
	return layerOf(t, entries...)
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "crafted.tar")
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zst(b []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(b, nil)
}
