package sandbox

import (
	"cmp"
	"strconv"
	"strings"
)

// Target is the tuple that names exactly one provider implementation.
// Source: concept "Where a provider sits", Selection.
type Target struct {
	Provider                string    `json:"provider"`
	ProviderRevision        string    `json:"provider_revision"`
	MaterializationRevision string    `json:"materialization_revision"`
	Placement               Placement `json:"placement"`
}

// Validate checks the four fields.
func (t Target) Validate() error {
	return first(
		checkCoordinate("provider", t.Provider),
		checkIdentity("provider_revision", t.ProviderRevision),
		checkIdentity("materialization_revision", t.MaterializationRevision),
		checkMember("placement", t.Placement),
	)
}

// Platform is an operating system and an architecture.
// Source: concept "The capability envelope", row platforms.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

// Validate holds os to linux and architecture to amd64 or arm64.
func (p Platform) Validate() error {
	if p.OS != "linux" {
		return invalid("os", "linux", p.OS)
	}
	if p.Architecture != "amd64" && p.Architecture != "arm64" {
		return invalid("architecture", "amd64 or arm64", p.Architecture)
	}
	return nil
}

// Profile is the frozen description of the machine that a Session may have.
// Source: concept "Where a provider sits", Admission.
type Profile struct {
	ProfileID      string        `json:"profile_id"`
	ProfileVersion int64         `json:"profile_version"`
	Tier           Tier          `json:"tier"`
	BaseImage      string        `json:"base_image"`
	Packages       []Package     `json:"packages"`
	NetworkPolicy  NetworkPolicy `json:"network_policy"`
	ResourceLimits Resources     `json:"resource_limits"`
	RetentionMode  RetentionMode `json:"retention_mode"`
}

// Validate checks every field.
func (p Profile) Validate() error {
	return first(
		checkIdentity("profile_id", p.ProfileID),
		checkInteger("profile_version", p.ProfileVersion, 1, MaxInteger),
		checkMember("tier", p.Tier),
		checkImage("base_image", p.BaseImage),
		checkPackages(p.Packages),
		prefix("network_policy", p.NetworkPolicy.Validate()),
		prefix("resource_limits", p.ResourceLimits.Validate()),
		checkMember("retention_mode", p.RetentionMode),
	)
}

// ImageIdentity returns the canonical JSON of {base_image, packages}: the
// bytes whose SHA-256 is the profile digest, the derived image's identity. The
// package has no hash of its own, so that it links no operating system; a
// provider writes "sha256:" and the hex of sha256.Sum256 over these bytes.
// Preconditions: p is valid (all its text is then plain ASCII).
func (p Profile) ImageIdentity() []byte {
	b := append([]byte(`{"base_image":`), quote(p.BaseImage)...)
	b = append(b, `,"packages":[`...)
	for i, pkg := range p.Packages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"manager":`...), quote(string(pkg.Manager))...)
		b = append(append(b, `,"name":`...), quote(pkg.Name)...)
		if pkg.Version != "" {
			b = append(append(b, `,"version":`...), quote(pkg.Version)...)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// quote is enough for identities, which hold neither quotes nor backslashes.
func quote(s string) string { return `"` + s + `"` }

// Package is one package to materialize into the derived image.
// Source: concept "The capability envelope", row package_managers.
type Package struct {
	Manager PackageManager `json:"manager"`
	Name    string         `json:"name"`
	Version string         `json:"version,omitzero"`
}

func (p Package) compare(q Package) int {
	return cmp.Or(strings.Compare(string(p.Manager), string(q.Manager)),
		strings.Compare(p.Name, q.Name), strings.Compare(p.Version, q.Version))
}

// checkPackages wants the list sorted by manager, name, version and free of
// duplicates, so that one set of packages has one digest.
func checkPackages(packages []Package) error {
	if len(packages) > MaxPackages {
		return invalid("packages", "at most "+strconv.Itoa(MaxPackages), strconv.Itoa(len(packages)))
	}
	for i, p := range packages {
		field := at("packages", i)
		err := first(checkMember(field+".manager", p.Manager), checkIdentity(field+".name", p.Name))
		if err == nil && p.Version != "" {
			err = checkIdentity(field+".version", p.Version)
		}
		if err != nil {
			return err
		}
		// A leading dash would be an option of the package manager.
		if p.Name[0] == '-' {
			return invalid(field+".name", "no leading dash", p.Name)
		}
		if strings.HasPrefix(p.Version, "-") {
			return invalid(field+".version", "no leading dash", p.Version)
		}
		if i > 0 && packages[i-1].compare(p) >= 0 {
			return invalid(field, "ascending by manager, name, version", p.Name)
		}
	}
	return nil
}

// NetworkPolicy is a union on Mode. Destinations are present exactly on an
// allowlist, possibly empty; RequiredEgressCertification is optional and only
// there, so that to require a boundary of unrestricted egress cannot be said.
// Source: grading "The grading rule".
type NetworkPolicy struct {
	Mode                        NetworkMode         `json:"mode"`
	Destinations                []Destination       `json:"destinations,omitzero"`
	RequiredEgressCertification EgressCertification `json:"required_egress_certification,omitzero"`
}

// Validate checks the union.
func (p NetworkPolicy) Validate() error {
	if err := checkMember("mode", p.Mode); err != nil {
		return err
	}
	if p.Mode != NetworkAllowlist {
		if p.Destinations != nil {
			return invalid("destinations", "absent unless mode is allowlist", strconv.Itoa(len(p.Destinations))+" destinations")
		}
		if p.RequiredEgressCertification != "" {
			return invalid("required_egress_certification", "absent unless mode is allowlist", string(p.RequiredEgressCertification))
		}
		return nil
	}
	if p.Destinations == nil {
		return invalid("destinations", "a list, possibly empty", "absent")
	}
	if len(p.Destinations) > MaxDestinations {
		return invalid("destinations", "at most "+strconv.Itoa(MaxDestinations), strconv.Itoa(len(p.Destinations)))
	}
	// One host and port has one mode: with two it would be open which holds.
	seen := make(map[Destination]bool, len(p.Destinations))
	for i, d := range p.Destinations {
		if err := d.Validate(); err != nil {
			return prefix(at("destinations", i), err)
		}
		d.Mode = ""
		if seen[d] {
			return invalid(at("destinations", i), "no second entry for a host and port", d.Host)
		}
		seen[d] = true
	}
	// A policy may not ask that nothing apply its own restriction.
	if r := p.RequiredEgressCertification; r != "" && r != EgressAdvisoryFilter && r != EgressSecurityBoundary {
		return invalid("required_egress_certification", "advisory_filter or security_boundary", string(r))
	}
	return nil
}

// Destination is one exact host and port that an allowlist admits. It grants
// no subdomain and no other port.
// Source: grading "The five facts, and the three that cannot be self-attested".
type Destination struct {
	Host string `json:"host"`
	Port int64  `json:"port"`
	// Mode is "tls" or "opaque"; omitted means tls on port 443, else opaque.
	Mode string `json:"mode,omitzero"`
}

// Validate holds the host to a lower-case ASCII DNS name that cannot be taken
// for an address: labels of letters, digits and inner hyphens, 1 to 63 bytes,
// 253 in all, the last label not numeric. Every spelling of an address
// (decimal, hex, octal, short, bracketed) fails this.
func (d Destination) Validate() error {
	bad := func() error { return invalid("host", "a lower-case DNS name, no address, no wildcard", d.Host) }
	if len(d.Host) == 0 || len(d.Host) > 253 {
		return bad()
	}
	labels := strings.Split(d.Host, ".")
	for _, label := range labels {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return bad()
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return bad()
			}
		}
	}
	last := labels[len(labels)-1]
	if last[0] >= '0' && last[0] <= '9' {
		return bad()
	}
	if d.Mode != "" && d.Mode != "tls" && d.Mode != "opaque" {
		return invalid("mode", "tls or opaque", d.Mode)
	}
	return checkInteger("port", d.Port, 1, 65535)
}
