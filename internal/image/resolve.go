package image

import (
	"context"
	"slices"
	"strings"
)

// minPrefix is the shortest digest prefix that names an image: shorter ones
// are too easily somebody's idea of a name.
const minPrefix = 12

// Resolve finds the image that ref names: a reference as List gives it, a name
// (with or without LocalDomain), name@sha256:HEX, sha256:HEX, or the first 12
// or more hex characters of a digest. A name that several images carry means
// the one brought in last.
//
// Errors: ErrNotFound, also for a prefix that fits several images.
func (s *Store) Resolve(ctx context.Context, ref string) (Image, error) {
	one, err := s.resolve(ctx, ref)
	if err != nil {
		return Image{}, within("resolve", ref, err)
	}
	return one.Image, nil
}

func (s *Store) resolve(ctx context.Context, ref string) (*stored, error) {
	all, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range slices.Backward(all) {
		if named(one, ref) {
			return one, nil
		}
	}
	prefix := strings.TrimPrefix(ref, "sha256:")
	if len(prefix) < minPrefix || !isHex(prefix) {
		return nil, &Error{Kind: ErrNotFound, Reason: "no image of this name", Expected: "a name, a reference, or at least 12 hex characters of a digest"}
	}
	var found *stored
	for _, one := range all {
		if !strings.HasPrefix(one.Digest, "sha256:"+prefix) {
			continue
		}
		if found != nil && found.Digest != one.Digest {
			return nil, &Error{Kind: ErrNotFound, Reason: "digest prefix is ambiguous", Got: found.Digest + " and " + one.Digest}
		}
		found = one
	}
	if found == nil {
		return nil, &Error{Kind: ErrNotFound, Reason: "no image of this digest"}
	}
	return found, nil
}

func named(one *stored, ref string) bool {
	if ref == "" {
		return false
	}
	name, _, _ := strings.Cut(one.Reference, "@")
	for _, n := range []string{name, strings.TrimPrefix(name, LocalDomain+"/")} {
		if ref == n || ref == n+"@"+one.Digest {
			return true
		}
	}
	return ref == one.Reference || ref == one.Digest
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

func sortByReference(images []Image) {
	slices.SortFunc(images, func(a, b Image) int {
		if c := strings.Compare(a.Reference, b.Reference); c != 0 {
			return c
		}
		return strings.Compare(a.Digest, b.Digest)
	})
}
