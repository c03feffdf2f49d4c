package image

import (
	"encoding/json"
	"fmt"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// parseManifest decodes an image manifest and checks everything that can be
// checked without its blobs.
func parseManifest(b []byte) (*v1.Manifest, error) {
	var m v1.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, hostile("manifest", "not a manifest", err)
	}
	if m.SchemaVersion != 2 {
		return nil, &Error{Kind: ErrUnsupported, Entry: "manifest", Reason: "schemaVersion", Expected: "2", Got: fmt.Sprint(m.SchemaVersion)}
	}
	if !m.Config.MediaType.IsConfig() {
		return nil, &Error{Kind: ErrUnsupported, Entry: "manifest", Reason: "not an image: config.mediaType", Got: string(m.Config.MediaType)}
	}
	if err := checkDescriptor(m.Config); err != nil {
		return nil, err
	}
	if m.Config.Size > MaxDocumentBytes {
		return nil, &Error{Kind: ErrTooLarge, Entry: "config", Expected: "at most 4 MiB", Got: fmt.Sprint(m.Config.Size)}
	}
	if len(m.Layers) > MaxLayers {
		return nil, &Error{Kind: ErrTooLarge, Entry: "manifest", Reason: "layers", Expected: fmt.Sprint("at most ", MaxLayers), Got: fmt.Sprint(len(m.Layers))}
	}
	for _, l := range m.Layers {
		// Layers that live elsewhere ("foreign", "non-distributable") are not
		// in any layout, and we follow no address that a manifest gives.
		if !l.MediaType.IsLayer() || !l.MediaType.IsDistributable() {
			return nil, &Error{Kind: ErrUnsupported, Entry: l.Digest.String(), Reason: "layer media type", Got: string(l.MediaType)}
		}
		if err := checkDescriptor(l); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// checkDescriptor refuses digests that could not name a file of the store.
// v1.Hash has checked that Hex is hex of the right length, if it was present.
func checkDescriptor(d v1.Descriptor) error {
	if d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != 64 || !isHex(d.Digest.Hex) {
		return &Error{Kind: ErrUnsupported, Entry: d.Digest.String(), Reason: "digest", Expected: "sha256 and 64 lower-case hex characters"}
	}
	if d.Size < 0 {
		return hostile(d.Digest.String(), fmt.Sprint("negative size ", d.Size), nil)
	}
	return nil
}

// describe joins a checked manifest with its configuration.
func describe(ref string, digest v1.Hash, manifestSize int64, m *v1.Manifest, config []byte) (*stored, error) {
	var c v1.ConfigFile
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, hostile("config", "not an image configuration", err)
	}
	if c.OS != "linux" || c.Architecture != runtime.GOARCH {
		return nil, &Error{Kind: ErrPlatform, Entry: "config", Expected: platform(), Got: c.OS + "/" + c.Architecture}
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		return nil, hostile("config", "rootfs.diff_ids do not match the manifest's layers",
			fmt.Errorf("%d diff_ids, %d layers", len(c.RootFS.DiffIDs), len(m.Layers)))
	}
	size := manifestSize + m.Config.Size
	for _, l := range m.Layers {
		if size += l.Size; size < 0 {
			return nil, hostile("manifest", "sizes overflow", nil)
		}
	}
	return &stored{
		Image: Image{
			Reference: ref,
			Digest:    digest.String(),
			Size:      size,
			Created:   c.Created.UTC(),
			Platform:  c.OS + "/" + c.Architecture,
			Config:    Config{Env: c.Config.Env, WorkingDir: c.Config.WorkingDir, User: c.Config.User},
		},
		manifest: m,
		diffIDs:  c.RootFS.DiffIDs,
	}, nil
}

// choose finds the one image for this host among the lines of an index. An
// index that holds nothing else may leave the platform of its only line out.
func choose(m *v1.IndexManifest) (v1.Descriptor, error) {
	var fit []v1.Descriptor
	var seen []string
	for _, d := range m.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue
		}
		p := d.Platform
		switch {
		case p == nil:
			fit = append(fit, d)
		case p.OS == "linux" && p.Architecture == runtime.GOARCH:
			fit = append(fit, d)
		default:
			seen = append(seen, p.String())
		}
	}
	switch {
	case len(fit) == 0:
		return v1.Descriptor{}, &Error{Kind: ErrPlatform, Entry: "index", Expected: platform(), Got: fmt.Sprint(seen)}
	case len(fit) > 1 && fit[0].Digest != fit[1].Digest:
		return v1.Descriptor{}, &Error{Kind: ErrUnsupported, Entry: "index", Reason: "several images fit", Expected: "one for " + platform(), Got: fmt.Sprint(len(fit))}
	}
	return fit[0], checkDescriptor(fit[0])
}

func parseIndex(b []byte) (*v1.IndexManifest, error) {
	var m v1.IndexManifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, hostile("index", "not an index", err)
	}
	if m.SchemaVersion != 2 {
		return nil, &Error{Kind: ErrUnsupported, Entry: "index", Reason: "schemaVersion", Expected: "2", Got: fmt.Sprint(m.SchemaVersion)}
	}
	return &m, nil
}

// manifestOf is the manifest we write for layers that come without one. Its
// bytes depend on nothing but its parts.
func manifestOf(config v1.Descriptor, layers []v1.Descriptor) ([]byte, error) {
	return json.Marshal(&v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Config:        config,
		Layers:        layers,
	})
}
