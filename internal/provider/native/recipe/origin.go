package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Origin names where packages come from by r: a digest of the registries that their
// managers use, and of the certificates of a bundle of the settings' own; "" where r
// says nothing of either. What one registry hands out is never taken for
// what another does. Pins are no part of it: who answers at a pinned address is held to
// the same name and certificates.
// Errors: canonical.Encode's, of which there is none for what DecodeRegistries made.
func (r Registries) Origin(packages []sandbox.Package) (string, error) {
	type registry struct {
		Manager      sandbox.PackageManager `json:"manager"`
		URL          string                 `json:"url"`
		Archive      string                 `json:"archive"`
		Destinations []sandbox.Destination  `json:"destinations"`
	}
	var of struct {
		Registries  []registry `json:"registries"`
		Authorities string     `json:"authorities,omitzero"`
	}
	for _, m := range managed { // in one order, whatever that of the packages
		used := slices.ContainsFunc(packages, func(p sandbox.Package) bool { return p.Manager == m.manager })
		if s, named := r.of[m.manager]; used && named {
			of.Registries = append(of.Registries, registry{m.manager, s.url, s.archive, s.destinations})
		}
	}
	if r.CABundle != "" {
		sum := sha256.Sum256(r.Authorities)
		of.Authorities = hex.EncodeToString(sum[:])
	}
	if of.Registries == nil && of.Authorities == "" {
		return "", nil
	}
	body, err := canonical.Encode(of)
	if err != nil {
		return "", err
	}
	return canonical.Digest(body), nil
}
