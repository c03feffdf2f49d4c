// Package image is the local store of OCI images, addressed by digest, and of
// the root trees unpacked from them.
//
// Trusts: the store directory, which only its owner may enter (mode 0700).
// Does not trust: any archive, layout, registry, manifest, configuration or
// layer. Bytes are believed once their digest is checked; what a layer says is
// carried out only below the directory that it is unpacked into.
// Shapes: blobs/sha256 and index.json are an OCI image layout;
// roots/sha256-HEX-IDBASE holds one unpacked tree (rootfs), its list of
// entries (tree) and its record (root.json); tmp holds work in progress.
// Units: sizes are bytes; ids are host ids where IDBase is added, else guest ids.
// Errors: *Error, of one of the kinds that are declared beside it.
// Concurrency: a Store may be used by many goroutines, and one directory by
// many processes; advisory locks (flock) keep them apart, and end with the
// process that held them.
// Source: OCI image-spec "OCI Image Layout Specification"; "Image Layer
// Filesystem Changeset".
package image

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// LocalDomain begins the Reference of every image that did not come from a
// registry.
const LocalDomain = "checkfu.local"

// Bounds that hold whatever Options say.
const (
	MaxLayers        = 128      // layers of one image
	MaxDocumentBytes = 4 << 20  // one manifest, index or configuration
	MaxDepth         = 256      // directories above one entry, as they really lie
	MaxPathBytes     = 4095     // one entry's path, and one link's target
	MaxNameBytes     = 255      // one component of a path
	MaxIDs           = 65536    // guest user and group ids: 0 to MaxIDs-1
	maxMembers       = 65536    // files of one archive that holds an image
	maxIndexDepth    = 4        // indexes that point to indexes
	DefaultMaxBytes  = 20 << 30 // Options.MaxBytes when that is 0
	DefaultEntries   = 1000000  // Options.MaxEntries when that is 0
)

// Options say how a Store unpacks. The zero value is usable.
type Options struct {
	// IDBase is the host id of guest id 0: it is added to every user and group
	// id of an unpacked tree.
	IDBase uint32
	// Progress is called during long work, from the goroutine that does it.
	// It may be nil and must not block.
	Progress func(Progress)
	// MaxBytes bounds what one image may come to: the bytes fetched, the bytes
	// its layers decompress to, and the bytes its files hold, each of them.
	MaxBytes int64
	// MaxEntries bounds the entries of all layers of one image together,
	// directories that are only implied included.
	MaxEntries int64
}

// Progress is one step of long work.
type Progress struct {
	Stage  string // "fetch", "unpack" or "build"
	Detail string // a digest or a line of the build's own output
	Done   int64  // bytes; of the image as stored for "fetch" and "unpack"
	Total  int64  // bytes; 0 where it is not known
}

// Config is what an image asks of whoever starts something in it. It is the
// image author's word: strings as they were recorded, not checked.
type Config struct {
	Env        []string // KEY=VALUE
	WorkingDir string
	User       string
}

// Image is one image that the store holds.
type Image struct {
	// Reference is the pulled reference, or LocalDomain/NAME@DIGEST.
	Reference string
	// Digest is the digest of the image's manifest, "sha256:" and 64 hex
	// characters. For an image that was chosen from an index it is not the
	// digest in Reference.
	Digest   string
	Size     int64 // bytes of manifest, configuration and layers as stored
	Created  time.Time
	Platform string // "linux/amd64"
	Config   Config
	// Derivation is of an image that Derive made; nil of any other.
	Derivation *Derivation
}

// stored is an image with the documents it was read from.
type stored struct {
	Image
	manifest *v1.Manifest
	diffIDs  []v1.Hash
}
