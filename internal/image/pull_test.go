package image

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serve runs a registry on loopback and pushes what c holds. meddle, if not
// nil, sees each response's body for a blob or manifest and may change it.
func serve(t *testing.T, c *crafted, requests *atomic.Int64, meddle func(path string, body []byte) []byte) string {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var armed atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if meddle == nil || !armed.Load() {
			inner.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		body := meddle(r.URL.Path, rec.Body.Bytes())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		w.Write(body)
	}))
	t.Cleanup(srv.Close)
	repo := strings.TrimPrefix(srv.URL, "http://") + "/team/tool"
	p, err := layout.FromPath(c.directory(t))
	if err != nil {
		t.Fatal(err)
	}
	index, err := p.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(repo + ":latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	requests.Store(0)
	armed.Store(true)
	return repo
}

func TestPull(t *testing.T) {
	var requests atomic.Int64
	l := layerOf(t, e{name: "a", body: strings.Repeat("x", 1<<20)})
	c := craft(t, gz, l)
	c.index.Manifests[0].Platform = &v1.Platform{OS: "linux", Architecture: c.config.Architecture}
	foreign := craft(t, gz, layerOf(t, e{name: "b"}))
	foreign.config.Architecture = "s390x"
	foreign.seal(t)
	for hex, b := range foreign.blobs {
		c.blobs[hex] = b
	}
	other := foreign.index.Manifests[0]
	other.Platform = &v1.Platform{OS: "linux", Architecture: "s390x"}
	c.index.Manifests = append([]v1.Descriptor{other}, c.index.Manifests...)
	want := c.index.Manifests[1].Digest.String()
	repo := serve(t, c, &requests, nil)
	indexDigest := digestOf(encode(t, c.index)).String()

	s := openStore(t, Options{})
	ctx := t.Context()
	for _, ref := range []string{repo + "@" + want, repo + "@" + indexDigest} {
		img, err := s.Pull(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if img.Reference != ref || img.Digest != want {
			t.Errorf("got %+v", img)
		}
		asked := requests.Load()
		if again, err := s.Pull(ctx, ref); err != nil || again.Digest != want {
			t.Error(err)
		}
		if requests.Load() != asked {
			t.Error("an image that is there was fetched again")
		}
		for _, r := range []string{ref, repo, repo + "@" + want} {
			if got, err := s.Resolve(ctx, r); err != nil || got.Digest != want {
				t.Errorf("resolve %s: %v %v", r, got, err)
			}
		}
	}
	r, err := s.Rootfs(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
	if all, err := s.List(ctx); err != nil || len(all) != 2 {
		t.Errorf("list: %v %v", all, err)
	}
	if err := s.Remove(ctx, repo); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("list after removal of every reference: %v %v", all, err)
	}
	for ref, want := range map[string]error{
		repo + "@" + other.Digest.String(): ErrPlatform,
		repo + ":latest":                   ErrUnsupported,
		repo:                               ErrUnsupported,
		repo + "@sha256:abc":               ErrUnsupported,
		"../x@" + indexDigest + "x":        ErrUnsupported,
		repo + "@sha256:" + strings.Repeat("0", 64):       nil,
		"127.0.0.1:1/x@sha256:" + strings.Repeat("0", 64): nil,
	} {
		before := snapshot(t, s.dir)
		_, err := s.Pull(ctx, ref)
		if e, ok := errors.AsType[*Error](err); !ok || e.Op != "pull" || e.Ref != ref || (want != nil && !errors.Is(err, want)) {
			t.Errorf("%s: got %v, want %v", ref, err, want)
		}
		if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
			t.Errorf("%s: the refusal left something: %s", ref, diff)
		}
	}
}

// TestPullFromLiar: a registry that answers with other bytes than asked for.
func TestPullFromLiar(t *testing.T) {
	l := layerOf(t, e{name: "a", body: strings.Repeat("x", 1<<20)})
	for _, c := range []struct {
		name string
		path string // what the lie is about
		lie  func([]byte) []byte
	}{
		{"layer changed", "layer", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		{"layer cut", "layer", func(b []byte) []byte { return b[:len(b)/2] }},
		{"layer without end", "layer", func(b []byte) []byte { return append(b, make([]byte, 8<<20)...) }},
		{"config changed", "config", func(b []byte) []byte { return append(b, ' ') }},
		{"manifest changed", "/manifests/", func(b []byte) []byte { return append(b, ' ') }},
		{"manifest huge", "/manifests/", func(b []byte) []byte { return append(b, make([]byte, 64<<20)...) }},
		{"config huge", "config", func(b []byte) []byte { return append(b, make([]byte, 64<<20)...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := craft(t, gz, l)
			path := c.path
			switch path {
			case "layer":
				path = image.manifest.Layers[0].Digest.String()
			case "config":
				path = image.manifest.Config.Digest.String()
			}
			var requests atomic.Int64
			repo := serve(t, image, &requests, func(p string, b []byte) []byte {
				if strings.Contains(p, path) && len(b) > 0 {
					return c.lie(b)
				}
				return b
			})
			s := openStore(t, Options{})
			if unlock, err := s.lock(t.Context(), "import.lock"); err == nil {
				unlock()
			}
			before := snapshot(t, s.dir)
			_, err := s.Pull(t.Context(), repo+"@"+image.digest())
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("got %v", err)
			}
			t.Log(err)
			if diff := cmp.Diff(before, snapshot(t, s.dir)); diff != "" {
				t.Errorf("the refusal left something: %s", diff)
			}
		})
	}
}
