package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// saved makes a docker save archive.
func saved(t testing.TB, c *crafted, manifest any, extra ...e) []byte {
	t.Helper()
	entries := []e{{name: "config.json", body: string(encode(t, c.config))}}
	for i, l := range c.manifest.Layers {
		entries = append(entries, e{name: "layer" + strconv.Itoa(i) + "/layer.tar", body: string(c.blobs[l.Digest.Hex])})
	}
	if manifest == nil {
		var layers []string
		for i := range c.manifest.Layers {
			layers = append(layers, "layer"+strconv.Itoa(i)+"/layer.tar")
		}
		manifest = []map[string]any{{"Config": "config.json", "RepoTags": []string{"registry.example:5000/team/tool:1.2"}, "Layers": layers}}
	}
	entries = append(entries, extra...)
	return layerOf(t, append(entries, e{name: "manifest.json", body: string(encode(t, manifest))})...)
}

// TestImportForms brings the same files in by every form that is accepted.
func TestImportForms(t *testing.T) {
	l0 := layerOf(t, e{name: "a", body: "1"}, e{name: "b", body: strings.Repeat("b", 1<<20)})
	l1 := layerOf(t, e{name: ".wh.a"}, e{name: "c", body: "3"})
	plain := craft(t, nil, l0, l1)
	for _, c := range []struct {
		name string
		path func(t *testing.T) string
		ref  string
	}{
		{"layout directory", func(t *testing.T) string { return plain.directory(t) }, "crafted"},
		{"layout directory, gzip layers", func(t *testing.T) string { return craft(t, gz, l0, l1).directory(t) }, "crafted"},
		{"layout directory, zstd layers", func(t *testing.T) string { return craft(t, zst, l0, l1).directory(t) }, "crafted"},
		{"layout tar", func(t *testing.T) string { return write(t, plain.archive(t)) }, "crafted"},
		{"layout tar.gz", func(t *testing.T) string { return write(t, gz(plain.archive(t))) }, "crafted"},
		{"layout tar.zst", func(t *testing.T) string { return write(t, zst(plain.archive(t))) }, "crafted"},
		{"layout of an index", func(t *testing.T) string {
			c := craft(t, gz, l0, l1)
			inner := c.index
			inner.Manifests[0].Platform = &v1.Platform{OS: "linux", Architecture: c.config.Architecture}
			other := c.blob(types.OCIManifestSchema1, []byte("{}"))
			other.Platform = &v1.Platform{OS: "linux", Architecture: "s390x"}
			attestation := c.blob(types.OCIManifestSchema1, []byte("{} "))
			attestation.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
			inner.Manifests = append(inner.Manifests, other, attestation)
			c.index.Manifests = []v1.Descriptor{c.blob(types.OCIImageIndex, encode(t, inner))}
			c.index.Manifests[0].Annotations = map[string]string{refAnnotation: "registry.example/team/tool:1"}
			return c.directory(t)
		}, "team/tool"},
		{"docker save", func(t *testing.T) string { return write(t, saved(t, plain, nil)) }, "team/tool"},
		{"docker save, gzip", func(t *testing.T) string { return write(t, gz(saved(t, plain, nil))) }, "team/tool"},
		{"docker save, gzip layers", func(t *testing.T) string { return write(t, saved(t, craft(t, gz, l0, l1), nil)) }, "team/tool"},
		{"docker save, linked layer", func(t *testing.T) string {
			m := []map[string]any{{"Config": "config.json", "Layers": []string{"x/layer.tar", "y"}}}
			return write(t, saved(t, plain, m, e{name: "x/layer.tar", kind: tar.TypeSymlink, link: "../layer0/layer.tar"}, e{name: "y", kind: tar.TypeLink, link: "layer1/layer.tar"}))
		}, "crafted"},
		{"both forms in one archive", func(t *testing.T) string {
			plain.others = map[string][]byte{"manifest.json": []byte("not looked at")}
			defer func() { plain.others = nil }()
			return write(t, plain.archive(t))
		}, "crafted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStore(t, Options{})
			img, err := s.Import(t.Context(), c.path(t))
			if err != nil {
				t.Fatal(err)
			}
			if want := LocalDomain + "/" + c.ref + "@" + img.Digest; img.Reference != want {
				t.Errorf("reference %s, want %s", img.Reference, want)
			}
			r, err := s.Rootfs(t.Context(), img.Digest)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Release()
			if diff := cmp.Diff([]string{"b =" + strings.Repeat("b", 1<<20), "c =3"}, leaves(t, r.Path)); diff != "" {
				t.Error(diff)
			}
			// Somebody else's reader must find our store a valid layout.
			p, err := layout.FromPath(s.dir)
			if err != nil {
				t.Fatal(err)
			}
			h, _ := v1.NewHash(img.Digest)
			theirs, err := p.Image(h)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Image(theirs, validate.Fast); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImportOfOthers reads a layout that go-containerregistry wrote.
func TestImportOfOthers(t *testing.T) {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: strings.TrimPrefix(platform(), "linux/")})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "theirs")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Options{})
	got, err := s.Import(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := img.Digest(); got.Digest != want.String() {
		t.Errorf("digest %s, want %s", got.Digest, want)
	}
}

// TestImportRefusals: every refusal has its kind and leaves the store as it
// was, with an image in it already.
func TestImportRefusals(t *testing.T) {
	good := layerOf(t, e{name: "a", body: strings.Repeat("good", 1000)})
	make := func(spoil func(*crafted)) func(*testing.T) string {
		return func(t *testing.T) string {
			c := craft(t, gz, good)
			spoil(c)
			return c.directory(t)
		}
	}
	tarOf := func(entries ...e) func(*testing.T) string {
		return func(t *testing.T) string { return write(t, layerOf(t, entries...)) }
	}
	for _, c := range []struct {
		name string
		path func(t *testing.T) string
		want error
		opt  Options
	}{
		{name: "nothing there", want: ErrNotFound, path: func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }},
		{name: "empty directory", want: ErrUnsupported, path: func(t *testing.T) string { return t.TempDir() }},
		{name: "FIFO", want: ErrUnsupported, path: func(t *testing.T) string {
			p := filepath.Join(t.TempDir(), "fifo")
			if err := exec.Command("mkfifo", p).Run(); err != nil {
				t.Fatal(err)
			}
			return p
		}},
		{name: "no tar", want: ErrHostile, path: func(t *testing.T) string { return write(t, []byte(strings.Repeat("no tar", 1000))) }},
		{name: "a tar of something else", want: ErrUnsupported, path: tarOf(e{name: "x", body: "y"})},
		{name: "truncated gzip archive", want: ErrHostile, path: func(t *testing.T) string {
			b := gz(craft(t, nil, good).archive(t))
			return write(t, b[:len(b)/2])
		}},
		{name: "archive that is a bomb", want: ErrTooLarge, opt: Options{MaxBytes: 1 << 20}, path: func(t *testing.T) string { return write(t, gz(bytes.Repeat([]byte{0}, 8<<20))) }},
		{name: "index is not JSON", want: ErrHostile, path: tarOf(e{name: "index.json", body: "{"})},
		{name: "index too large", want: ErrTooLarge, path: tarOf(e{name: "index.json", body: strings.Repeat(" ", MaxDocumentBytes+1)})},
		{name: "index twice", want: ErrHostile, path: tarOf(e{name: "index.json", body: "{}"}, e{name: "./index.json", body: "{}"})},
		{name: "index is a link to outside", want: ErrUnsupported, path: tarOf(e{name: "index.json", kind: tar.TypeSymlink, link: "../../../etc/passwd"})},
		{name: "index links in a circle", want: ErrHostile, path: tarOf(e{name: "index.json", kind: tar.TypeSymlink, link: "b"}, e{name: "b", kind: tar.TypeSymlink, link: "index.json"})},
		{name: "blob is a link to outside", want: nil, path: func(t *testing.T) string {
			c := craft(t, nil, good)
			dir := c.directory(t)
			blob := filepath.Join(dir, "blobs/sha256", c.manifest.Layers[0].Digest.Hex)
			out := write(t, good)
			os.Remove(blob)
			if err := os.Symlink(out, blob); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		{name: "layer digest", want: ErrDigestMismatch, path: make(func(c *crafted) {
			b := c.blobs[c.manifest.Layers[0].Digest.Hex]
			b[len(b)-1] ^= 1
		})},
		{name: "layer too short", want: ErrDigestMismatch, path: make(func(c *crafted) {
			h := c.manifest.Layers[0].Digest.Hex
			c.blobs[h] = c.blobs[h][:10]
		})},
		{name: "layer longer than said", want: ErrTooLarge, path: make(func(c *crafted) {
			c.manifest.Layers[0].Size--
			c.seal(t)
		})},
		{name: "layer shorter than said", want: ErrHostile, path: make(func(c *crafted) {
			c.manifest.Layers[0].Size++
			c.seal(t)
		})},
		{name: "layer missing", want: ErrNotFound, path: make(func(c *crafted) { delete(c.blobs, c.manifest.Layers[0].Digest.Hex) })},
		{name: "config missing", want: ErrNotFound, path: make(func(c *crafted) { delete(c.blobs, c.manifest.Config.Digest.Hex) })},
		{name: "config digest", want: ErrDigestMismatch, path: make(func(c *crafted) { c.blobs[c.manifest.Config.Digest.Hex][0] = ' ' })},
		{name: "manifest digest", want: ErrDigestMismatch, path: make(func(c *crafted) { c.blobs[c.index.Manifests[0].Digest.Hex][0] = ' ' })},
		{name: "negative size", want: ErrHostile, path: make(func(c *crafted) { c.manifest.Layers[0].Size = -1; c.seal(t) })},
		{name: "size overflow", want: ErrHostile, path: make(func(c *crafted) {
			l := c.manifest.Layers[0]
			l.Size = 1<<63 - 1
			c.manifest.Layers = []v1.Descriptor{l, l}
			c.config.RootFS.DiffIDs = append(c.config.RootFS.DiffIDs, c.config.RootFS.DiffIDs[0])
			c.seal(t)
		})},
		{name: "larger than MaxBytes", want: ErrTooLarge, path: make(func(c *crafted) { c.manifest.Layers[0].Size = 1 << 40; c.seal(t) })},
		{name: "sha512", want: ErrUnsupported, path: make(func(c *crafted) {
			c.index.Manifests[0].Digest = v1.Hash{Algorithm: "sha512", Hex: strings.Repeat("0", 128)}
		})},
		{name: "digest that is a path", want: ErrHostile, path: func(t *testing.T) string {
			c := craft(t, nil, good)
			index := bytes.Replace(encode(t, c.index), []byte(c.digest()), []byte("sha256:../../../../etc/passwd"), 1)
			return write(t, layerOf(t, e{name: "index.json", body: string(index)}))
		}},
		{name: "too many layers", want: ErrTooLarge, path: make(func(c *crafted) {
			for range MaxLayers {
				c.manifest.Layers = append(c.manifest.Layers, c.manifest.Layers[0])
			}
			c.seal(t)
		})},
		{name: "too few diff_ids", want: ErrHostile, path: make(func(c *crafted) { c.config.RootFS.DiffIDs = nil; c.seal(t) })},
		{name: "foreign layer", want: ErrUnsupported, path: make(func(c *crafted) { c.manifest.Layers[0].MediaType = types.DockerForeignLayer; c.seal(t) })},
		{name: "artifact", want: ErrUnsupported, path: make(func(c *crafted) { c.manifest.Layers[0].MediaType = "application/vnd.example"; c.seal(t) })},
		{name: "architecture", want: ErrPlatform, path: make(func(c *crafted) { c.config.Architecture = "s390x"; c.seal(t) })},
		{name: "operating system", want: ErrPlatform, path: make(func(c *crafted) { c.config.OS = "windows"; c.seal(t) })},
		{name: "index without our platform", want: ErrPlatform, path: make(func(c *crafted) {
			c.index.Manifests[0].Platform = &v1.Platform{OS: "linux", Architecture: "s390x"}
		})},
		{name: "empty index", want: ErrPlatform, path: make(func(c *crafted) { c.index.Manifests = nil })},
		{name: "two images", want: ErrUnsupported, path: make(func(c *crafted) {
			c.index.Manifests = append(c.index.Manifests, c.blob(types.OCIManifestSchema1, []byte("{}")))
		})},
		{name: "manifest that is an index too", want: ErrHostile, path: make(func(c *crafted) {
			both := strings.Replace(string(encode(t, c.manifest)), "{", `{"manifests":[],`, 1)
			c.index.Manifests = []v1.Descriptor{c.blob(types.OCIManifestSchema1, []byte(both))}
		})},
		{name: "index called a manifest", want: ErrHostile, path: make(func(c *crafted) {
			c.index.Manifests = []v1.Descriptor{c.blob(types.OCIManifestSchema1, encode(t, c.index))}
		})},
		{name: "index without end", want: ErrHostile, path: make(func(c *crafted) {
			for range maxIndexDepth + 1 {
				c.index.Manifests = []v1.Descriptor{c.blob(types.OCIImageIndex, encode(t, c.index))}
			}
		})},
		{name: "docker save of two", want: ErrUnsupported, path: func(t *testing.T) string {
			return write(t, saved(t, craft(t, nil, good), []map[string]any{{}, {}}))
		}},
		{name: "docker save without its layer", want: ErrNotFound, path: func(t *testing.T) string {
			return write(t, saved(t, craft(t, nil, good), []map[string]any{{"Config": "config.json", "Layers": []string{"../layer0/layer.tar"}}}))
		}},
		{name: "docker save, layers too large", want: ErrTooLarge, opt: Options{MaxBytes: 100}, path: func(t *testing.T) string { return write(t, saved(t, craft(t, nil, good), nil)) }},
		{name: "docker save, too few diff_ids", want: ErrHostile, path: func(t *testing.T) string {
			c := craft(t, nil, good)
			c.config.RootFS.DiffIDs = nil
			return write(t, saved(t, c, nil))
		}},
		{name: "docker save, layer cut short", want: ErrHostile, path: func(t *testing.T) string {
			b := saved(t, craft(t, nil, good), nil, e{name: "manifest.json", body: "x"})
			return write(t, b[:2000])
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStore(t, c.opt)
			if c.opt.MaxBytes == 0 {
				if _, err := s.Import(t.Context(), craft(t, nil, layerOf(t, e{name: "other"})).directory(t)); err != nil {
					t.Fatal(err)
				}
			} else if unlock, err := s.lock(t.Context(), "import.lock"); err == nil {
				unlock()
			}
			before := snapshot(t, s.dir)
			img, err := s.Import(t.Context(), c.path(t))
			if c.want == nil {
				// A link that leaves the layout: os.Root says so in its own words.
				if err == nil || img.Digest != "" {
					t.Errorf("got %v", img)
				}
			} else if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%T is not an *Error", err)
			}
			if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
				t.Errorf("the refusal left something: %s", diff)
			}
		})
	}
}
