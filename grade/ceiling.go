package grade

import (
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
)

// Nothing says that a claim and its ceiling have nothing in common in a field
// that cannot be empty, so that no envelope is left to select.
type Nothing struct {
	Field   string // JSON path in the envelope
	Claimed string
	Ceiling string
}

// Error names the field and both sides.
func (e *Nothing) Error() string {
	return "grade: " + e.Field + ": nothing that is claimed is admitted: claimed " + e.Claimed + ", ceiling " + e.Ceiling
}

// meeting is one claim on its way under one ceiling.
type meeting struct {
	lines []Narrowing
	err   error // the first
}

// underCeiling meets c with the most that is admitted, field by field. Both are
// valid envelopes; so is the result. The rules across fields need no repair:
// where a ceiling has no snapshots it has no durable retention either, and each
// field takes the weaker of two that agree with their neighbours.
// Source: grading "The enforcement ceiling gap".
func underCeiling(c, most sandbox.Capabilities, lines []Narrowing) (sandbox.Capabilities, []Narrowing, error) {
	m := &meeting{lines: lines}
	if c.Target() != most.Target() {
		// A ceiling for another revision says nothing about this one.
		return sandbox.Capabilities{}, nil, &Nothing{"target", target(c), target(most)}
	}
	c.Tiers = common(m, "tiers", c.Tiers, most.Tiers, true)
	c.Platforms = m.platforms(c.Platforms, most.Platforms)
	m.images(&c, most)
	c.PackageManagers = common(m, "package_managers", c.PackageManagers, most.PackageManagers, false)
	c.NetworkModes = common(m, "network_modes", c.NetworkModes, most.NetworkModes, true)
	c.RetentionModes = common(m, "retention_modes", c.RetentionModes, most.RetentionModes, true)
	m.flag("snapshots", &c.Snapshots, most.Snapshots)
	if c.SnapshotCustody != most.SnapshotCustody && most.SnapshotCustody == sandbox.CustodyRunner {
		m.narrowed("snapshot_custody", string(c.SnapshotCustody), string(most.SnapshotCustody), string(most.SnapshotCustody))
		c.SnapshotCustody = most.SnapshotCustody
	}
	m.flag("snapshot_clone", &c.SnapshotClone, most.SnapshotClone)
	m.flag("active_mount_write", &c.ActiveMountWrite, most.ActiveMountWrite)
	m.lines = capEnforcement(&c, most.Enforcement, ReasonCeiling, m.lines)
	if exceeds(c.EgressCertification, most.EgressCertification) {
		m.narrowed("egress_certification", string(c.EgressCertification), string(most.EgressCertification), string(most.EgressCertification))
		c.EgressCertification = most.EgressCertification
	}
	m.flag("list_dir", &c.ListDir, most.ListDir)
	m.flag("symlink_staging", &c.SymlinkStaging, most.SymlinkStaging)
	m.resources(&c, most)
	if c.MaxMounts > most.MaxMounts {
		m.narrowed("max_mounts", number(c.MaxMounts), number(most.MaxMounts), number(most.MaxMounts))
		c.MaxMounts = most.MaxMounts
	}
	if m.err != nil {
		return sandbox.Capabilities{}, nil, m.err
	}
	return c, m.lines, nil
}

// exceeds reports whether a grade is above the most that is admitted.
func exceeds(claimed, most sandbox.EgressCertification) bool {
	return slices.Index(egressOrder, claimed) > slices.Index(egressOrder, most)
}

func (m *meeting) narrowed(field, claimed, ceiling, result string) {
	m.lines = append(m.lines, Narrowing{field, claimed, ceiling, result, ReasonCeiling})
}

func (m *meeting) nothing(field, claimed, ceiling string) {
	if m.err == nil {
		m.err = &Nothing{field, claimed, ceiling}
	}
}

func (m *meeting) flag(field string, claimed *bool, most bool) {
	if *claimed && !most {
		m.narrowed(field, "true", "false", "false")
		*claimed = false
	}
}

// common keeps the order of the claim.
func common[T ~string](m *meeting, field string, claimed, most []T, needed bool) []T {
	left := slices.DeleteFunc(slices.Clone(claimed), func(v T) bool { return !slices.Contains(most, v) })
	switch {
	case len(left) == 0 && needed:
		m.nothing(field, spell(claimed), spell(most))
	case len(left) < len(claimed):
		m.narrowed(field, spell(claimed), spell(most), spell(left))
	}
	return left
}

func (m *meeting) platforms(claimed, most []sandbox.Platform) (left []sandbox.Platform) {
	words := common(m, "platforms", platforms(claimed), platforms(most), true)
	for _, p := range claimed {
		if slices.Contains(words, p.OS+"/"+p.Architecture) {
			left = append(left, p)
		}
	}
	return left
}

// images: a provider that builds from any profile may be held to fixed ones; a
// provider of fixed ones is held to those that both have.
func (m *meeting) images(c *sandbox.Capabilities, most sandbox.Capabilities) {
	switch {
	case most.ImageMode != sandbox.ImageFixed:
	case c.ImageMode == sandbox.ImageFixed:
		c.FixedBaseImages = common(m, "fixed_base_images", c.FixedBaseImages, most.FixedBaseImages, true)
	default:
		m.narrowed("image_mode", string(c.ImageMode), string(most.ImageMode), string(most.ImageMode))
		c.ImageMode, c.FixedBaseImages = most.ImageMode, slices.Clone(most.FixedBaseImages)
	}
}

// resources meets two ranges, axis by axis.
func (m *meeting) resources(c *sandbox.Capabilities, most sandbox.Capabilities) {
	low, high := axes(&c.MinimumResources), axes(&c.MaximumResources)
	for i, limit := range axes(&most.MinimumResources) {
		if *low[i].value < *limit.value {
			m.narrowed("minimum_resources."+limit.name, number(*low[i].value), number(*limit.value), number(*limit.value))
			*low[i].value = *limit.value
		}
	}
	for i, limit := range axes(&most.MaximumResources) {
		if *high[i].value > *limit.value {
			m.narrowed("maximum_resources."+limit.name, number(*high[i].value), number(*limit.value), number(*limit.value))
			*high[i].value = *limit.value
		}
		if *low[i].value > *high[i].value {
			m.nothing("maximum_resources."+limit.name, "at least "+number(*low[i].value), number(*high[i].value))
		}
	}
}

type axis struct {
	name  string
	value *int64
}

func axes(r *sandbox.Resources) []axis {
	return []axis{{"cpu_millis", &r.CPUMillis}, {"memory_bytes", &r.MemoryBytes}, {"disk_bytes", &r.DiskBytes},
		{"max_processes", &r.MaxProcesses}, {"max_duration_seconds", &r.MaxDurationSeconds}}
}

func platforms(set []sandbox.Platform) []string {
	words := make([]string, len(set))
	for i, p := range set {
		words[i] = p.OS + "/" + p.Architecture
	}
	return words
}

func target(c sandbox.Capabilities) string {
	return strings.Join([]string{c.Provider, c.ProviderRevision, c.MaterializationRevision, string(c.Placement)}, " ")
}

// spell is a list for a person, who cannot see an empty one.
func spell[T ~string](set []T) string {
	if len(set) == 0 {
		return "none"
	}
	words := make([]string, len(set))
	for i, v := range set {
		words[i] = string(v)
	}
	return strings.Join(words, " ")
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
