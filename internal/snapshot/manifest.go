package snapshot

import (
	"slices"
	"strconv"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Schema names the form and version of a manifest, SchemaLive of one with a live
// checkpoint, which who knows the first alone refuses by its name.
const (
	Schema     = "checkfu.snapshot.v1"
	SchemaLive = "checkfu.snapshot-live.v1"
)

// maxManifest bounds what is read of a manifest: 64 mounts and 4,096 chunks are
// below 1 MiB.
const maxManifest = 4 << 20

// Form is what the content of a snapshot is.
type Form string

// The forms.
const (
	FormImage Form = "image" // a filesystem image, as package volume makes it
	FormTree  Form = "tree"  // a stream of package tree
)

// Chunk is the digest of one stretch of the content that is not all zero.
type Chunk struct {
	Index  int64          `json:"index"` // its offset divided by chunk_bytes
	Digest sandbox.Digest `json:"digest"`
}

// Manifest is what a store knows of one snapshot.
type Manifest struct {
	Schema       string           `json:"schema"`
	Snapshot     sandbox.Snapshot `json:"snapshot"`
	Mounts       []sandbox.Mount  `json:"mounts"`
	Form         Form             `json:"form"`
	ContentBytes int64            `json:"content_bytes"` // holes counted
	ChunkBytes   int64            `json:"chunk_bytes"`
	Chunks       []Chunk          `json:"chunks"` // ascending
	// Live is there where memory and processes were kept too.
	Live *Live `json:"live,omitzero"`
	// Seal is the digest of the canonical JSON of all of the above, with an
	// empty seal.
	Seal sandbox.Digest `json:"seal"`
}

// encode seals m and returns its bytes.
func (m *Manifest) encode() ([]byte, error) {
	m.Schema, m.Seal = m.schema(), ""
	body, err := canonical.Encode(*m)
	if err != nil {
		return nil, err
	}
	m.Seal = sandbox.Digest(canonical.Digest(body))
	return canonical.Encode(*m)
}

func (m *Manifest) schema() string {
	if m.Live != nil {
		return SchemaLive
	}
	return Schema
}

// ParseManifest reads a manifest and checks its seal, so that no byte of it can
// have changed.
// Errors: *Error with ErrUnsupported (another schema) or ErrDamaged and the
// field.
func ParseManifest(body []byte) (Manifest, error) {
	var m Manifest
	if err := canonical.Decode(body, &m); err != nil {
		return Manifest{}, &Error{Kind: ErrDamaged, Field: "manifest", Err: err}
	}
	if want := m.schema(); m.Schema != want {
		return Manifest{}, &Error{Kind: ErrUnsupported, Field: "schema", Expected: want, Got: m.Schema}
	}
	open := m
	open.Seal = ""
	plain, err := canonical.Encode(open)
	if err != nil {
		return Manifest{}, &Error{Kind: ErrDamaged, Field: "manifest", Err: err}
	}
	if want := sandbox.Digest(canonical.Digest(plain)); m.Seal != want {
		return Manifest{}, damaged("seal", string(want), string(m.Seal))
	}
	return m, m.check()
}

// check holds a sealed manifest to what encode can have sealed.
func (m *Manifest) check() error {
	if err := m.Snapshot.Validate(); err != nil {
		return &Error{Kind: ErrDamaged, Field: "snapshot", Err: err}
	}
	if !validID(m.Snapshot.SnapshotID) {
		return damaged("snapshot.snapshot_id", "32 hex digits", string(m.Snapshot.SnapshotID))
	}
	if m.Form != FormImage && m.Form != FormTree {
		return &Error{Kind: ErrUnsupported, Field: "form", Expected: string(FormImage) + " or " + string(FormTree), Got: string(m.Form)}
	}
	if m.Live != nil {
		if err := m.Live.check(); err != nil {
			return err
		}
	}
	return checkChunks("", m.ContentBytes, m.ChunkBytes, m.Chunks)
}

// checkChunks holds the digests of a content, or of a file beside it, to their form.
func checkChunks(of string, bytes, chunk int64, chunks []Chunk) error {
	name := "bytes"
	if of == "" {
		name = "content_bytes"
	}
	if bytes < 0 {
		return damaged(of+name, "at least 0", strconv.FormatInt(bytes, 10))
	}
	if want := chunkBytes(bytes); chunk != want {
		return damaged(of+"chunk_bytes", strconv.FormatInt(want, 10), strconv.FormatInt(chunk, 10))
	}
	last := int64(-1)
	for i, c := range chunks {
		field := of + "chunks[" + strconv.Itoa(i) + "]"
		if c.Index <= last || c.Index*chunk >= bytes {
			return damaged(field+".index", "ascending, within the content", strconv.FormatInt(c.Index, 10))
		}
		if !c.Digest.Valid() {
			return damaged(field+".digest", "a digest", string(c.Digest))
		}
		last = c.Index
	}
	return nil
}

// disagree says on which field a reference differs from the one that was kept:
// a reference is not an authority.
func disagree(kept, given sandbox.Snapshot) error {
	for _, f := range []struct{ name, kept, given string }{
		{"provider", kept.Provider, given.Provider},
		{"placement", string(kept.Placement), string(given.Placement)},
		{"source_instance_id", string(kept.SourceInstanceID), string(given.SourceInstanceID)},
		{"workspace_id", kept.WorkspaceID, given.WorkspaceID},
		{"session_id", kept.SessionID, given.SessionID},
		{"profile_id", kept.ProfileID, given.ProfileID},
		{"profile_version", strconv.FormatInt(kept.ProfileVersion, 10), strconv.FormatInt(given.ProfileVersion, 10)},
		{"profile_digest", string(kept.ProfileDigest), string(given.ProfileDigest)},
		{"created_at", string(kept.CreatedAt), string(given.CreatedAt)},
		{"expires_at", string(kept.ExpiresAt), string(given.ExpiresAt)},
	} {
		if f.kept != f.given {
			return &Error{Kind: ErrMismatch, Field: "snapshot." + f.name, Expected: f.kept, Got: f.given}
		}
	}
	return nil
}

// compare names the first chunk on which the content differs from the manifest.
func (m *Manifest) compare(got []Chunk) error {
	if slices.Equal(m.Chunks, got) {
		return nil
	}
	for i := 0; ; i++ {
		var want, have Chunk
		if i < len(m.Chunks) {
			want = m.Chunks[i]
		}
		if i < len(got) {
			have = got[i]
		}
		if want == have {
			continue
		}
		index := want.Index
		if i >= len(m.Chunks) || i < len(got) && have.Index < want.Index {
			index, want = have.Index, Chunk{}
		} else if have.Index != index {
			have = Chunk{}
		}
		from := index * m.ChunkBytes
		field := "content bytes " + strconv.FormatInt(from, 10) + " to " + strconv.FormatInt(min(from+m.ChunkBytes, m.ContentBytes), 10)
		return damaged(field, orZero(want.Digest), orZero(have.Digest))
	}
}

func orZero(d sandbox.Digest) string {
	if d == "" {
		return "zeros"
	}
	return string(d)
}
