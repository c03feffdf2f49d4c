package sandbox

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func TestSelection_Target(t *testing.T) {
	cases := []broken[Target]{
		{"provider", func(x *Target) { x.Provider = "" }},
		{"placement", func(x *Target) { x.Placement = "" }},
	}
	cases = append(cases, identities("provider_revision", func(x *Target) *string { return &x.ProviderRevision })...)
	cases = append(cases, identities("materialization_revision", func(x *Target) *string { return &x.MaterializationRevision })...)
	rules(t, goodTarget, "", cases)
	rules(t, func() Platform { return Platform{"linux", "amd64"} }, "", []broken[Platform]{
		{"os", func(p *Platform) { p.OS = "darwin" }},
		{"architecture", func(p *Platform) { p.Architecture = "386" }},
		{"architecture", func(p *Platform) { p.Architecture = "" }},
		{"", func(p *Platform) { p.Architecture = "arm64" }},
	})
}

func TestAdmission_Profile(t *testing.T) {
	cases := []broken[Profile]{
		{"profile_version", func(p *Profile) { p.ProfileVersion = 0 }},
		{"profile_version", func(p *Profile) { p.ProfileVersion = MaxInteger + 1 }},
		{"tier", func(p *Profile) { p.Tier = "host-process" }}, // never a profile's
		{"base_image", func(p *Profile) { p.BaseImage = "base:latest" }},
		{"base_image", func(p *Profile) { p.BaseImage = "@" + string(goodDigest) }},
		{"packages[0].manager", func(p *Profile) { p.Packages[0].Manager = "yum" }},
		{"packages[0].name", func(p *Profile) { p.Packages[0].Name = "" }},
		{"packages[0].name", func(p *Profile) { p.Packages[0].Name = "--allow" }},
		{"packages[1].version", func(p *Profile) { p.Packages[1].Version = "-o" }},
		{"packages[1].version", func(p *Profile) { p.Packages[1].Version = "1 2" }},
		{"packages[1]", func(p *Profile) { p.Packages[1].Name = "aa" }},
		{"packages[1]", func(p *Profile) { p.Packages[1] = p.Packages[0] }},
		{"packages[2]", func(p *Profile) { p.Packages[2].Manager = ManagerApt }},
		{"", func(p *Profile) { p.Packages[0].Name, p.Packages[0].Version = "git", "0" }},
		{"", func(p *Profile) { p.Packages = nil }},
		{"network_policy.mode", func(p *Profile) { p.NetworkPolicy.Mode = "" }},
		{"resource_limits.cpu_millis", func(p *Profile) { p.ResourceLimits.CPUMillis = 0 }},
		{"retention_mode", func(p *Profile) { p.RetentionMode = "" }},
	}
	rules(t, goodProfile, "", append(cases, identities("profile_id", func(p *Profile) *string { return &p.ProfileID })...))
	bound(t, "packages", MaxPackages, func(n int) error {
		p := goodProfile()
		p.Packages = nil
		for i := range n {
			p.Packages = append(p.Packages, Package{ManagerApt, fmt.Sprintf("p%04d", i), ""})
		}
		return p.Validate()
	})
}

func TestIdentity_ProfileDigestBytes(t *testing.T) {
	p := goodProfile()
	want := `{"base_image":"` + goodImage + `","packages":[{"manager":"apt","name":"curl"},{"manager":"apt","name":"git","version":"1"},{"manager":"npm","name":"a"}]}`
	if got := string(p.ImageIdentity()); got != want {
		t.Error(got)
	}
	p.Packages = nil
	if got := string(p.ImageIdentity()); got != `{"base_image":"`+goodImage+`","packages":[]}` {
		t.Error(got)
	}
	// Nothing but the image and the packages makes another image.
	q := goodProfile()
	q.ProfileID, q.Tier, q.NetworkPolicy, q.ResourceLimits, q.Packages = "q", TierMicroVM, NetworkPolicy{}, Resources{}, nil
	if string(q.ImageIdentity()) != string(p.ImageIdentity()) {
		t.Error("the digest depends on more than base_image and packages")
	}
}

func TestResources(t *testing.T) {
	axes := map[string]func(*Resources) *int64{
		"cpu_millis": func(r *Resources) *int64 { return &r.CPUMillis }, "memory_bytes": func(r *Resources) *int64 { return &r.MemoryBytes },
		"disk_bytes": func(r *Resources) *int64 { return &r.DiskBytes }, "max_processes": func(r *Resources) *int64 { return &r.MaxProcesses },
		"max_duration_seconds": func(r *Resources) *int64 { return &r.MaxDurationSeconds },
	}
	var cases []broken[Resources]
	low, high := Resources{5, 5, 5, 5, 5}, Resources{7, 7, 7, 7, 7}
	for name, axis := range axes {
		for _, bad := range []int64{0, -1, MaxInteger + 1} {
			cases = append(cases, broken[Resources]{name, func(r *Resources) { *axis(r) = bad }})
		}
		cases = append(cases, broken[Resources]{"", func(r *Resources) { *axis(r) = MaxInteger }})
		for n, want := range map[int64]string{4: name, 5: "", 6: "", 7: "", 8: name} {
			r := Resources{6, 6, 6, 6, 6}
			*axis(&r) = n
			if got := r.Within(low, high); got != want {
				t.Errorf("%s at %d: %q", name, n, got)
			}
		}
	}
	rules(t, func() Resources { return Resources{1, 1, 1, 1, 1} }, "", cases)
}

// TestGradingRule_PolicyUnion: what may not be said cannot be said.
func TestGradingRule_PolicyUnion(t *testing.T) {
	allow := func() NetworkPolicy {
		return NetworkPolicy{NetworkAllowlist, []Destination{{"a.test", 443, "tls"}, {"a.test", 80, ""}}, EgressSecurityBoundary}
	}
	rules(t, allow, "", []broken[NetworkPolicy]{
		{"mode", func(p *NetworkPolicy) { p.Mode = "some" }},
		{"destinations", func(p *NetworkPolicy) { p.Destinations = nil }},
		{"", func(p *NetworkPolicy) { p.Destinations = []Destination{} }},
		{"destinations[1].host", func(p *NetworkPolicy) { p.Destinations[1].Host = "10.0.0.1" }},
		{"destinations[1]", func(p *NetworkPolicy) { p.Destinations[1].Port = 443 }}, // with another mode
		{"destinations[1]", func(p *NetworkPolicy) { p.Destinations[1] = p.Destinations[0] }},
		{"required_egress_certification", func(p *NetworkPolicy) { p.RequiredEgressCertification = EgressUnsupported }},
		{"required_egress_certification", func(p *NetworkPolicy) { p.RequiredEgressCertification = "gold" }},
		{"", func(p *NetworkPolicy) { p.RequiredEgressCertification = "" }},
		{"destinations", func(p *NetworkPolicy) { *p = NetworkPolicy{Mode: NetworkNone, Destinations: []Destination{}} }},
		{"required_egress_certification", func(p *NetworkPolicy) { *p = NetworkPolicy{NetworkUnrestricted, nil, EgressSecurityBoundary} }},
		{"", func(p *NetworkPolicy) { *p = NetworkPolicy{Mode: NetworkNone} }},
		{"", func(p *NetworkPolicy) { *p = NetworkPolicy{Mode: NetworkUnrestricted} }},
	})
	bound(t, "destinations", MaxDestinations, func(n int) error {
		p := NetworkPolicy{Mode: NetworkAllowlist}
		for i := range n {
			p.Destinations = append(p.Destinations, Destination{"h" + strconv.Itoa(i), 1, ""})
		}
		return p.Validate()
	})
}

// TestFiveFacts_Destination: an exact name that no resolver takes for an
// address.
func TestFiveFacts_Destination(t *testing.T) {
	rules(t, func() Destination { return Destination{"example.test", 443, ""} }, "", []broken[Destination]{
		{"host", func(d *Destination) { d.Host = "" }},
		{"port", func(d *Destination) { d.Port = 0 }},
		{"", func(d *Destination) { d.Port = 1 }},
		{"", func(d *Destination) { d.Port = 65535 }},
		{"port", func(d *Destination) { d.Port = 65536 }},
		{"", func(d *Destination) { d.Mode = "opaque" }},
		{"mode", func(d *Destination) { d.Mode = "http" }},
	})
	at := func(host string) error { return Destination{host, 443, ""}.Validate() }
	for _, good := range []string{"a", "a.b", "a-b.c", "1a.test", "1.2.3.x", "xn--e1afmkfd.test", "0x7f.a"} {
		named(t, at(good), "")
	}
	for _, bad := range []string{
		"*", "*.test", "A.test", "a.test.", ".a", "a..b", "-a", "a-", "a.-b", "a_b", "a b", "a\n", "a\x00", "é.test", "a:443", "a/b", "u@a", "a%2e",
		"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "1.2.3.4", "::1", "[::1]", "::ffff:1.2.3.4", "fe80::1%eth0", "1", "a.1", "a.0x1",
	} {
		named(t, at(bad), "host")
	}
	bound(t, "host", 63, func(n int) error { return at(strings.Repeat("a", n)) })
	bound(t, "host", 253, func(n int) error {
		return at(strings.Repeat(strings.Repeat("a", 49)+".", 6)[:250] + strings.Repeat("a", n-250))
	})
}

func FuzzDestination(f *testing.F) {
	for _, seed := range []string{"example.test", "127.0.0.1", "0x7f.1", "a.", "[::1]", "xn--a", "1.2.3.0x4"} {
		f.Add(seed, int64(443), "")
	}
	f.Fuzz(func(t *testing.T, host string, port int64, mode string) {
		if (Destination{host, port, mode}).Validate() != nil {
			return
		}
		last := host[strings.LastIndexByte(host, '.')+1:]
		if _, err := netip.ParseAddr(host); err == nil || strings.ToLower(host) != host || strings.ContainsAny(host, " :/@*[]%_\x00") ||
			last == "" || last[0] >= '0' && last[0] <= '9' || len(host) > 253 || port < 1 || port > 65535 {
			t.Errorf("took %q", host)
		}
	})
}
