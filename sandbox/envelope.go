package sandbox

import "strconv"

// Capabilities is the capability envelope: the one honest statement that a
// provider makes about itself, unchanging for one provider revision. It is all
// that selection knows of the provider.
// Source: concept "The capability envelope".
type Capabilities struct {
	Provider                string              `json:"provider"`
	ProviderRevision        string              `json:"provider_revision"`
	MaterializationRevision string              `json:"materialization_revision"`
	Placement               Placement           `json:"placement"`
	Tiers                   []Tier              `json:"tiers"`
	Platforms               []Platform          `json:"platforms"`
	ImageMode               ImageMode           `json:"image_mode"`
	FixedBaseImages         []string            `json:"fixed_base_images"`
	PackageManagers         []PackageManager    `json:"package_managers"`
	NetworkModes            []NetworkMode       `json:"network_modes"`
	RetentionModes          []RetentionMode     `json:"retention_modes"`
	Snapshots               bool                `json:"snapshots"`
	SnapshotCustody         Custody             `json:"snapshot_custody,omitzero"`
	SnapshotClone           bool                `json:"snapshot_clone,omitzero"`
	ActiveMountWrite        bool                `json:"active_mount_write,omitzero"`
	Enforcement             Enforcement         `json:"enforcement"`
	EgressCertification     EgressCertification `json:"egress_certification,omitzero"`
	ListDir                 bool                `json:"list_dir,omitzero"`
	SymlinkStaging          bool                `json:"symlink_staging,omitzero"`
	MinimumResources        Resources           `json:"minimum_resources"`
	MaximumResources        Resources           `json:"maximum_resources"`
	MaxMounts               int64               `json:"max_mounts"`
}

// WithDefaults returns c with every omitted optional field at its weakest
// legal value: silence is never read as a capability claim.
// Source: concept "The capability envelope" (fail-closed defaults).
func (c Capabilities) WithDefaults() Capabilities {
	if c.SnapshotCustody == "" {
		c.SnapshotCustody = CustodyRunner
	}
	if c.EgressCertification == "" {
		c.EgressCertification = EgressUnsupported
	}
	return c
}

// Validate checks every field and the cross-field rules. It accepts omitted
// optional fields.
// Errors: *Invalid, for the first broken rule in field order.
// Source: concept "The capability envelope"; contract "Optional capabilities:
// absent versus wrong", row snapshot_clone.
func (c Capabilities) Validate() error {
	c = c.WithDefaults()
	err := first(
		checkCoordinate("provider", c.Provider),
		checkIdentity("provider_revision", c.ProviderRevision),
		checkIdentity("materialization_revision", c.MaterializationRevision),
		checkMember("placement", c.Placement),
		checkSet("tiers", c.Tiers, true),
		checkPlatforms(c.Platforms),
		checkMember("image_mode", c.ImageMode),
		checkImages(c.FixedBaseImages),
		checkSet("package_managers", c.PackageManagers, false),
		checkSet("network_modes", c.NetworkModes, true),
		checkSet("retention_modes", c.RetentionModes, true),
		checkMember("snapshot_custody", c.SnapshotCustody),
		c.Enforcement.Validate(),
		checkMember("egress_certification", c.EgressCertification),
		prefix("minimum_resources", c.MinimumResources.Validate()),
		prefix("maximum_resources", c.MaximumResources.Validate()),
		checkInteger("max_mounts", c.MaxMounts, 0, MaxInteger),
	)
	if err != nil {
		return err
	}
	if axis := c.MinimumResources.exceeds(c.MaximumResources); axis != "" {
		return invalid("minimum_resources."+axis, "at most maximum_resources."+axis, "more")
	}
	if (c.ImageMode == ImageFixed) != (len(c.FixedBaseImages) > 0) {
		return invalid("fixed_base_images", "non-empty exactly when image_mode is fixed",
			strconv.Itoa(len(c.FixedBaseImages))+" images with image_mode "+string(c.ImageMode))
	}
	needs := func(field string, claimed bool) error {
		if claimed && !c.Snapshots {
			return invalid(field, "snapshots: true beside it", "snapshots: false")
		}
		return nil
	}
	durable := false
	for _, m := range c.RetentionModes {
		durable = durable || m == RetentionDurable
	}
	return first(
		needs("retention_modes", durable),
		needs("snapshot_custody", c.SnapshotCustody == CustodyProvider),
		needs("snapshot_clone", c.SnapshotClone),
	)
}

// Target returns the tuple by which selection finds this provider.
func (c Capabilities) Target() Target {
	return Target{
		Provider: c.Provider, ProviderRevision: c.ProviderRevision,
		MaterializationRevision: c.MaterializationRevision, Placement: c.Placement,
	}
}

// Enforcement is the nine-axis authority statement: who realizes each control.
// Source: concept "The enforcement statement".
type Enforcement struct {
	SandboxIsolation    Authority `json:"sandbox_isolation"`
	RootReadOnly        Authority `json:"root_read_only"`
	NonRoot             Authority `json:"non_root"`
	NoNewPrivileges     Authority `json:"no_new_privileges"`
	CapabilitiesDropped Authority `json:"capabilities_dropped"`
	MountsSealed        Authority `json:"mounts_sealed"`
	DiskLimit           Authority `json:"disk_limit"`
	NetworkPolicy       Authority `json:"network_policy"`
	ResourceLimits      Authority `json:"resource_limits"`
}

// On returns the authority on one axis, or "" if axis is none of the nine.
func (e Enforcement) On(axis Axis) Authority {
	if p := e.field(axis); p != nil {
		return *p
	}
	return ""
}

// With returns e with one axis set. An unknown axis changes nothing.
func (e Enforcement) With(axis Axis, a Authority) Enforcement {
	if p := e.field(axis); p != nil {
		*p = a
	}
	return e
}

func (e *Enforcement) field(axis Axis) *Authority {
	switch axis {
	case AxisSandboxIsolation:
		return &e.SandboxIsolation
	case AxisRootReadOnly:
		return &e.RootReadOnly
	case AxisNonRoot:
		return &e.NonRoot
	case AxisNoNewPrivileges:
		return &e.NoNewPrivileges
	case AxisCapabilitiesDropped:
		return &e.CapabilitiesDropped
	case AxisMountsSealed:
		return &e.MountsSealed
	case AxisDiskLimit:
		return &e.DiskLimit
	case AxisNetworkPolicy:
		return &e.NetworkPolicy
	case AxisResourceLimits:
		return &e.ResourceLimits
	}
	return nil
}

// EnforcedBy returns the statement that gives a on all nine axes.
func EnforcedBy(a Authority) Enforcement {
	return Enforcement{a, a, a, a, a, a, a, a, a}
}

// Validate checks that each of the nine axes carries one of the four
// authorities.
func (e Enforcement) Validate() error {
	for _, axis := range Axes() {
		if err := checkMember("enforcement."+string(axis), e.On(axis)); err != nil {
			return err
		}
	}
	return nil
}

// Resources are limits on one instance, or one end of the range a provider
// accepts. They are ordered axis by axis.
// Source: concept "The capability envelope", row minimum_resources.
type Resources struct {
	CPUMillis          int64 `json:"cpu_millis"`           // thousandths of a core
	MemoryBytes        int64 `json:"memory_bytes"`         // bytes
	DiskBytes          int64 `json:"disk_bytes"`           // bytes of writable storage
	MaxProcesses       int64 `json:"max_processes"`        // processes and threads
	MaxDurationSeconds int64 `json:"max_duration_seconds"` // longest command
}

// Validate checks that every limit is positive and survives JSON.
func (r Resources) Validate() error {
	return first(
		checkInteger("cpu_millis", r.CPUMillis, 1, MaxInteger),
		checkInteger("memory_bytes", r.MemoryBytes, 1, MaxInteger),
		checkInteger("disk_bytes", r.DiskBytes, 1, MaxInteger),
		checkInteger("max_processes", r.MaxProcesses, 1, MaxInteger),
		checkInteger("max_duration_seconds", r.MaxDurationSeconds, 1, MaxInteger),
	)
}

// Within returns "" if low ≤ r ≤ high on every axis, else the JSON name of the
// first axis that is out of the range.
func (r Resources) Within(low, high Resources) string {
	if axis := low.exceeds(r); axis != "" {
		return axis
	}
	return r.exceeds(high)
}

// exceeds names the first axis on which r is greater than limit.
func (r Resources) exceeds(limit Resources) string {
	switch {
	case r.CPUMillis > limit.CPUMillis:
		return "cpu_millis"
	case r.MemoryBytes > limit.MemoryBytes:
		return "memory_bytes"
	case r.DiskBytes > limit.DiskBytes:
		return "disk_bytes"
	case r.MaxProcesses > limit.MaxProcesses:
		return "max_processes"
	case r.MaxDurationSeconds > limit.MaxDurationSeconds:
		return "max_duration_seconds"
	}
	return ""
}

// member is a closed set.
type member interface {
	comparable
	Valid() bool
}

func checkMember[T interface {
	~string
	member
}](field string, v T) error {
	if !v.Valid() {
		return invalid(field, "a member of its closed set", string(v))
	}
	return nil
}

func checkSet[T interface {
	~string
	member
}](field string, set []T, nonEmpty bool) error {
	if nonEmpty && len(set) == 0 {
		return invalid(field, "at least one", "none")
	}
	seen := make(map[T]bool, len(set))
	for i, v := range set {
		if err := checkMember(at(field, i), v); err != nil {
			return err
		}
		if seen[v] {
			return invalid(at(field, i), "no duplicate", string(v))
		}
		seen[v] = true
	}
	return nil
}

func checkPlatforms(platforms []Platform) error {
	if len(platforms) == 0 {
		return invalid("platforms", "at least one", "none")
	}
	seen := make(map[Platform]bool, len(platforms))
	for i, p := range platforms {
		if err := prefix(at("platforms", i), p.Validate()); err != nil {
			return err
		}
		if seen[p] {
			return invalid(at("platforms", i), "no duplicate", p.OS+"/"+p.Architecture)
		}
		seen[p] = true
	}
	return nil
}

func checkImages(images []string) error {
	seen := make(map[string]bool, len(images))
	for i, image := range images {
		if err := checkImage(at("fixed_base_images", i), image); err != nil {
			return err
		}
		if seen[image] {
			return invalid(at("fixed_base_images", i), "no duplicate", image)
		}
		seen[image] = true
	}
	return nil
}

// checkImage holds an image reference to NAME@sha256:…: a name alone can be
// moved to other bytes after admission.
func checkImage(field, reference string) error {
	if err := checkIdentity(field, reference); err != nil {
		return err
	}
	if ImageDigest(reference) == "" {
		return invalid(field, "NAME@sha256:DIGEST", reference)
	}
	return nil
}
