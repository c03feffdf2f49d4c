package snapshot

import (
	"bytes"
	"errors"
	"testing"

	"github.com/checkfu/checkfu/sandbox"
)

func manifest() Manifest {
	c := noon()
	ref := reference(c.in(1e9))
	ref.SnapshotID, ref.CreatedAt = "0123456789abcdef0123456789abcdef", c.in(0)
	return Manifest{
		Snapshot: ref, Mounts: plan, Form: FormImage, ContentBytes: 3 << 20, ChunkBytes: minChunk,
		Chunks: []Chunk{{0, ref.ProfileDigest}, {2, ref.ProfileDigest}},
	}
}

// TestParseManifest_EveryBitIsSealed flips a bit of each byte of a manifest: none of the
// results is read as a manifest that says anything else.
func TestParseManifest_EveryBitIsSealed(t *testing.T) {
	m := manifest()
	body, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseManifest(body); err != nil {
		t.Fatal(err)
	}
	for n := range body {
		bit := n*8 + n%8
		other := bytes.Clone(body)
		other[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseManifest(other); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
}

func TestParseManifest_RefusesWhatIsSealedAndWrong(t *testing.T) {
	cases := map[string]struct {
		change func(*Manifest)
		want   error
	}{
		"snapshot":             {func(m *Manifest) { m.Snapshot.ExpiresAt = m.Snapshot.CreatedAt }, ErrDamaged},
		"snapshot.snapshot_id": {func(m *Manifest) { m.Snapshot.SnapshotID = "short" }, ErrDamaged},
		"form":                 {func(m *Manifest) { m.Form = "tar" }, ErrUnsupported},
		"content_bytes":        {func(m *Manifest) { m.ContentBytes = -1 }, ErrDamaged},
		"chunk_bytes":          {func(m *Manifest) { m.ChunkBytes = 4096 }, ErrDamaged},
		"chunks[1].index":      {func(m *Manifest) { m.Chunks[1].Index = 0 }, ErrDamaged},
		"chunks[0].index":      {func(m *Manifest) { m.Chunks[0].Index = 3 }, ErrDamaged},
		"chunks[0].digest":     {func(m *Manifest) { m.Chunks[0].Digest = "sha256:" }, ErrDamaged},
	}
	for field, c := range cases {
		t.Run(field, func(t *testing.T) {
			m := manifest()
			c.change(&m)
			body, err := m.encode()
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParseManifest(body)
			var e *Error
			if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Field != field {
				t.Errorf("got %v", err)
			}
		})
	}
	m := manifest()
	body, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseManifest(bytes.Replace(body, []byte(Schema), []byte("checkfu.snapshot.v2"), 1)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("another schema: %v", err)
	}
}

// TestChunks_StayFewAndCoverAll at the sizes where their length doubles.
func TestChunks_StayFewAndCoverAll(t *testing.T) {
	for _, size := range []int64{0, 1, minChunk, minChunk*maxChunks - 1, minChunk * maxChunks, minChunk*maxChunks + 1, 1 << 40, sandbox.MaxInteger} {
		if n := size / chunkBytes(size); n >= maxChunks {
			t.Errorf("%d bytes have %d chunks", size, n)
		}
	}
	if got := chunkBytes(1 << 30); got != minChunk {
		t.Errorf("of a GiB %d", got)
	}
}

// FuzzParseManifest: whatever is accepted comes back as the same bytes.
func FuzzParseManifest(f *testing.F) {
	m := manifest()
	body, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte("{}"))
	f.Add(bytes.Replace(body, []byte("image"), []byte("tree"), 1))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseManifest(body)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseManifest(again); err != nil || back.Seal != m.Seal {
			t.Fatalf("%v", err)
		}
	})
}
