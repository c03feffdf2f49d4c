package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/checkfu/checkfu/internal/lock"
)

// Derivation says what a derived image was made of. Only Derive writes one, into
// the store's own index: an image that came from elsewhere has none, whatever it
// is called and its documents say.
type Derivation struct {
	// Key names all that the image depends on, "sha256:" and 64 hex characters. It
	// is the caller's to compute, and the cache's key.
	Key string `json:"key"`
	// Base is the digest of the image below. A derived image needs it no more: its
	// layers are among its own.
	Base string `json:"base"`
	// Profile is the profile digest that the image stands for.
	Profile string `json:"profile"`
	// Materialization is the revision of how it was made: no other asks for it.
	Materialization string `json:"materialization"`
	// Packages are what was added, as people write them: "apt:jq@1.6-2.1".
	Packages []string `json:"packages"`
}

const (
	deriveAnnotation = "checkfu.derivation"
	derivedName      = "derived/" // begins the name of every derived image
	turnPrefix       = "turn-"    // begins the name of a lock in tmp
)

var keyForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Derived finds the image that was derived under a key.
// Errors: ErrNotFound.
func (s *Store) Derived(ctx context.Context, key string) (Image, error) {
	all, err := s.all(ctx)
	if err != nil {
		return Image{}, within("derived", key, err)
	}
	for _, one := range slices.Backward(all) {
		if one.Derivation != nil && one.Derivation.Key == key {
			return one.Image, nil
		}
	}
	return Image{}, &Error{Op: "derived", Ref: key, Kind: ErrNotFound, Reason: "not built"}
}

// Turn waits until nobody else, of this process or another, has the turn to
// derive under key, and takes it. It ends with the call of end, or its process.
// Errors: ctx's; the operating system's.
func (s *Store) Turn(ctx context.Context, key string) (end func(), err error) {
	if !keyForm.MatchString(key) {
		return nil, &Error{Op: "derive", Ref: key, Kind: ErrUnsupported, Reason: "key", Expected: keyForm.String()}
	}
	// In tmp: what is left of one is swept like any other work, and a lock got on
	// a file that was swept meanwhile is tried again.
	path := s.path("tmp", turnPrefix+key[len("sha256:"):])
	f, err := lock.Open(ctx, path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, lock.Exclusive)
	if err != nil {
		return nil, within("derive", key, err)
	}
	return func() {
		os.Remove(path) // who waits for it sees that, and makes another
		f.Close()
	}, nil
}

// Derive adds an image to the store: that with the digest d.Base, with one layer
// more on top of its own. The same base and difference give the same digest.
//
// Blocks: while it reads the difference, and while another process imports.
// Errors: ErrNotFound for the base; ErrTooLarge, ErrHostile, ErrUnsupported for a
// difference that no layer can be made of. The store is then as it was.
func (s *Store) Derive(ctx context.Context, d Derivation, diff Difference) (Image, error) {
	img, err := s.derive(ctx, d, diff)
	if err != nil {
		return Image{}, within("derive", d.Base, err)
	}
	return img, nil
}

func (s *Store) derive(ctx context.Context, d Derivation, diff Difference) (_ Image, err error) {
	if !keyForm.MatchString(d.Key) {
		return Image{}, &Error{Kind: ErrUnsupported, Reason: "key", Expected: keyForm.String(), Got: d.Key}
	}
	st, err := s.stage(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = joined(err, st.close()) }()
	layer, err := st.difference(ctx, diff)
	if err != nil {
		return Image{}, err
	}
	// From here on nobody can take the base's blobs away.
	unlock, err := s.lock(ctx, "import.lock")
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	base, err := s.byDigest(d.Base)
	if err != nil {
		return Image{}, err
	}
	if n := len(base.manifest.Layers); n >= MaxLayers {
		return Image{}, &Error{Kind: ErrTooLarge, Reason: "layers of the base", Expected: fmt.Sprint("below ", MaxLayers), Got: fmt.Sprint(n)}
	}
	config, err := s.configWith(base, layer)
	if err != nil {
		return Image{}, err
	}
	note, err := json.Marshal(d)
	if err != nil {
		return Image{}, err
	}
	st.note = map[string]string{deriveAnnotation: string(note)}
	img, err := st.assemble(ctx, config, append(slices.Clone(base.manifest.Layers), layer), derivedName+d.Key[len("sha256:"):][:minPrefix])
	img.Derivation = &d
	return img, err
}

// difference stages the layer. It stays uncompressed: no two compressors agree on
// bytes for ever.
func (st *stage) difference(ctx context.Context, diff Difference) (v1.Descriptor, error) {
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(st.store.writeDifference(ctx, diff, w)) }()
	h, size, err := st.blob(ctx, r, st.store.opt.MaxBytes, nil)
	return v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: h, Size: size}, err
}

// configWith is the base's configuration with one more layer. What says when and
// by what it was made is left out: it would be another's.
func (s *Store) configWith(base *stored, layer v1.Descriptor) ([]byte, error) {
	text, err := s.document(base.manifest.Config.Digest)
	if err != nil {
		return nil, err
	}
	var c v1.ConfigFile
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, hostile("config", "not an image configuration", err)
	}
	return json.Marshal(v1.ConfigFile{
		OS: c.OS, Architecture: c.Architecture, Variant: c.Variant, Created: v1.Time{Time: BaseEpoch}, Config: c.Config,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: append(slices.Clone(base.diffIDs), layer.Digest)},
	})
}

// derivation reads what the index says of a derived image; nil where it says
// nothing.
func derivation(d v1.Descriptor) (*Derivation, error) {
	text := d.Annotations[deriveAnnotation]
	if text == "" {
		return nil, nil
	}
	var found Derivation
	if err := json.Unmarshal([]byte(text), &found); err != nil || !keyForm.MatchString(found.Key) {
		return nil, hostile(indexFile, "derivation", errors.Join(err, errors.New(text)))
	}
	return &found, nil
}
