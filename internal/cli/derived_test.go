package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/checkfu/checkfu/internal/image"
	"github.com/checkfu/checkfu/internal/provider/native"
)

// derive puts an image on top of another, as a build for a profile does.
func derive(t *testing.T, images *image.Store, base image.Image, profile, materialization string) image.Image {
	t.Helper()
	img, err := images.Derive(t.Context(), image.Derivation{
		Key: profile, Base: base.Digest, Profile: profile, Materialization: materialization,
		Packages: []string{"apt:jq@1.6", "npm:left-pad", "npm:a", "npm:b", "npm:c", "npm:d"},
	}, image.Difference{Upper: t.TempDir(), Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// A derived image is a cache: it goes when nobody can ask for it any more, or who
// prunes takes all that is unused, and stays while a paused session is on it.
func TestDerivedImagesAreACache(t *testing.T) {
	state := stateOfItsOwn(t)
	images, base := busybox(t, state)
	digest := func(hex string) string { return "sha256:" + strings.Repeat(hex, 64) }
	now := derive(t, images, base, digest("0"), native.MaterializationRevision)
	var out bytes.Buffer
	if code := Run(t.Context(), []string{"image", "ls"}, nil, &out, &out); code != 0 || !strings.Contains(out.String(), "apt:jq@1.6 npm:left-pad npm:a npm:b and 2 more\n") {
		t.Errorf("%s", out.String())
	}
	if s := prunes(t); strings.Contains(s, "image ") {
		t.Errorf("one that can be asked for: %s", s)
	}
	pausedSession(t, state, "paused", base.Reference, time.Hour) // of profile 0
	if s := prunes(t, "--all-images"); strings.Contains(s, "removed image") {
		t.Errorf("one that a paused session is on: %s", s)
	}
	out.Reset()
	if code := Run(t.Context(), []string{"image", "rm", now.Digest}, nil, &out, &out); code == 0 || !strings.Contains(out.String(), "in use") {
		t.Errorf("%s", out.String())
	}
	// The same image, for another list of packages: it is the last one of its digest, and
	// by its own profile nobody needs it.
	twin := derive(t, images, base, digest("9"), native.MaterializationRevision)
	for _, ref := range []string{twin.Reference, now.Reference, now.Digest} {
		out.Reset()
		if code := Run(t.Context(), []string{"image", "rm", ref}, nil, &out, &out); twin.Digest != now.Digest || code == 0 || !strings.Contains(out.String(), "in use") {
			t.Errorf("%s: %s", ref, out.String())
		}
	}
	if code := Run(t.Context(), []string{"session", "rm", "paused"}, nil, new(bytes.Buffer), new(bytes.Buffer)); code != 0 {
		t.Fatal(code)
	}
	if s := prunes(t, "--all-images"); !strings.Contains(s, "removed image "+now.Reference+"\n") {
		t.Errorf("%s", s)
	}

	images, base = busybox(t, state)
	stale := derive(t, images, base, digest("1"), "another")
	if s := prunes(t); !strings.Contains(s, "removed image "+stale.Reference+"\n") || strings.Contains(s, base.Reference) {
		t.Errorf("of another revision: %s", s)
	}
	orphan := derive(t, images, base, digest("2"), native.MaterializationRevision)
	if err := images.Remove(t.Context(), base.Digest); err != nil {
		t.Fatal(err)
	}
	if s := prunes(t); !strings.Contains(s, "removed image "+orphan.Reference+"\n") {
		t.Errorf("without its base: %s", s)
	}
	if list, err := images.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v %v", list, err)
	}
}
