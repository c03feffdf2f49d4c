package recipe

import "github.com/checkfu/checkfu/internal/egress/policy"

// Registries are the operator's settings of where packages come from. The zero
// value is the official registries, found at public addresses, trusted by no
// authority: a caller sets Authorities.
type Registries struct {
	// Pins say where hosts live that are not at public addresses.
	Pins []policy.Pin
	// Authorities are the certificates, as PEM, of who may vouch for a registry.
	Authorities []byte
}
