package recipe

import (
	"cmp"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// The bounds of an operator's settings; ours.
const (
	MaxRegistriesBytes = 64 << 10 // of the file
	MaxHosts           = 32       // of one manager
)

// Registries are the operator's settings of where packages come from: the only place
// that names a registry. The zero value names none, and nothing is installed by it.
type Registries struct {
	// Pins say where hosts live that are not at public addresses.
	Pins []policy.Pin
	// CABundle is the path of a file on the host, "" for the host's own bundle. It
	// is the caller's to read it into Authorities.
	CABundle string
	// Authorities are the certificates, as PEM, of who may vouch for a registry.
	Authorities []byte

	of map[sandbox.PackageManager]source
}

// source is one manager's registry as it is used.
type source struct {
	url          string // what the tool is told; of apt "" where the image's own archives are asked
	archive      string // the first of the hosts
	destinations []sandbox.Destination
}

// file is the form of the settings on disk.
type file struct {
	V        int64     `json:"v"`
	Managers []setting `json:"managers,omitempty"`
	Pins     []pinned  `json:"pins,omitempty"`
	CABundle string    `json:"ca_bundle,omitempty"`
}

type setting struct {
	Manager sandbox.PackageManager `json:"manager"`
	Mirror  string                 `json:"mirror,omitempty"`
	Hosts   []string               `json:"hosts,omitempty"`
}

type pinned struct {
	Host     string   `json:"host"`
	Prefixes []string `json:"prefixes"`
}

// DecodeRegistries reads settings: strict JSON of a closed schema, whose version
// is 1.
//
//	{"v": 1,
//	 "managers": [{"manager": "npm", "mirror": "https://npm.example.com/", "hosts": ["cdn.example.com:443"]}],
//	 "pins": [{"host": "npm.example.com", "prefixes": ["10.1.0.0/16"]}],
//	 "ca_bundle": "/etc/company/ca.pem"}
//
// A mirror is the registry that the manager's tool asks. hosts are reached beside
// it: those that a registry hands downloads out from. apt may have hosts alone: the
// archives that images name. A host that is pinned and used by no manager is refused.
// Errors: *canonical.Error, *sandbox.Invalid.
func DecodeRegistries(data []byte) (Registries, error) {
	if len(data) > MaxRegistriesBytes {
		return Registries{}, invalid("registries", "at most "+strconv.Itoa(MaxRegistriesBytes)+" bytes", strconv.Itoa(len(data)))
	}
	var f file
	if err := canonical.Decode(data, &f); err != nil {
		return Registries{}, err
	}
	if f.V != 1 {
		return Registries{}, invalid("v", "1", strconv.FormatInt(f.V, 10))
	}
	if f.CABundle != "" && (!path.IsAbs(f.CABundle) || path.Clean(f.CABundle) != f.CABundle) {
		return Registries{}, invalid("ca_bundle", "an absolute path", f.CABundle)
	}
	r := Registries{CABundle: f.CABundle, of: map[sandbox.PackageManager]source{}}
	for i, s := range f.Managers {
		at := "managers[" + strconv.Itoa(i) + "]."
		if !s.Manager.Valid() {
			return Registries{}, invalid(at+"manager", "apt, cargo, gem, go, npm or pip", string(s.Manager))
		}
		if _, twice := r.of[s.Manager]; twice {
			return Registries{}, invalid(at+"manager", "each once", string(s.Manager))
		}
		use, err := s.source()
		if err != nil {
			return Registries{}, within(at, err)
		}
		r.of[s.Manager] = use
	}
	for i, p := range f.Pins {
		pin, err := p.pin()
		if err == nil && !r.uses(p.Host) {
			err = invalid("host", "a host of some registry", p.Host)
		}
		if err != nil {
			return Registries{}, within("pins["+strconv.Itoa(i)+"].", err)
		}
		r.Pins = append(r.Pins, pin)
	}
	if len(r.Pins) > policy.MaxPins {
		return Registries{}, invalid("pins", "at most "+strconv.Itoa(policy.MaxPins), strconv.Itoa(len(r.Pins)))
	}
	for i, p := range r.Pins {
		if slices.ContainsFunc(r.Pins[:i], func(q policy.Pin) bool { return q.Host == p.Host }) {
			return Registries{}, invalid("pins["+strconv.Itoa(i)+"].host", "each once", p.Host)
		}
	}
	return r, nil
}

func (s setting) source() (source, error) {
	var use source
	if len(s.Hosts) > MaxHosts {
		return source{}, invalid("hosts", "at most "+strconv.Itoa(MaxHosts), strconv.Itoa(len(s.Hosts)))
	}
	if s.Mirror != "" {
		d, err := mirrorHost(s.Mirror)
		if err != nil {
			return source{}, err
		}
		use.url, use.destinations = s.Mirror, append(use.destinations, d)
	}
	for i, text := range s.Hosts {
		target, err := policy.ParseTarget(text)
		if err != nil || target.Host+":"+strconv.Itoa(int(target.Port)) != text {
			return source{}, invalid("hosts["+strconv.Itoa(i)+"]", "HOST:PORT, a lower-case name", text)
		}
		if use.archive == "" {
			use.archive = strings.TrimSuffix(text, ":443")
		}
		use.destinations = append(use.destinations, sandbox.Destination{Host: target.Host, Port: int64(target.Port), Mode: policy.ModeTLS})
	}
	if s.Mirror == "" && (s.Manager != sandbox.ManagerApt || len(s.Hosts) == 0) {
		return source{}, invalid("mirror", "https://HOST[:PORT]/PATH; of apt that, or hosts", "none")
	}
	use.destinations = sorted(use.destinations)
	return use, nil
}

// mirrorHost reads the address of a mirror. Its text goes into a tool's options,
// so it has no byte that any of them reads as something else: no user, query or
// fragment, and of the rest only what needs no escape.
func mirrorHost(text string) (sandbox.Destination, error) {
	bad := func() (sandbox.Destination, error) {
		return sandbox.Destination{}, invalid("mirror", "https://HOST[:PORT]/PATH of letters, digits and . _ ~ -", text)
	}
	rest, ok := strings.CutPrefix(text, "https://")
	if !ok || len(text) > 1024 || strings.Contains(text, "/../") || strings.HasSuffix(text, "/..") {
		return bad()
	}
	for i := range len(rest) {
		c := rest[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("._~-:/", rune(c)) {
			return bad()
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Host != strings.ToLower(u.Host) || strings.Contains(u.Path, ":") {
		return bad()
	}
	target, err := policy.ParseTarget(u.Hostname() + ":" + cmp.Or(u.Port(), "443"))
	if err != nil {
		return bad()
	}
	return sandbox.Destination{Host: target.Host, Port: int64(target.Port), Mode: policy.ModeTLS}, nil
}

func (p pinned) pin() (policy.Pin, error) {
	pin := policy.Pin{Host: p.Host}
	for i, text := range p.Prefixes {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return policy.Pin{}, invalid("prefixes["+strconv.Itoa(i)+"]", "ADDRESS/BITS", text)
		}
		pin.Prefixes = append(pin.Prefixes, prefix)
	}
	return pin, pin.Validate()
}

func (r Registries) uses(host string) bool {
	for m := range grammars {
		if slices.ContainsFunc(r.Destinations(m), func(d sandbox.Destination) bool { return d.Host == host }) {
			return true
		}
	}
	return false
}

// Destinations are what the builds of a manager's packages may reach: in order,
// each once, all of them TLS; none where the settings do not name it. The caller owns
// the result.
func (r Registries) Destinations(m sandbox.PackageManager) []sandbox.Destination {
	return slices.Clone(r.of[m].destinations)
}

func sorted(all []sandbox.Destination) []sandbox.Destination {
	slices.SortFunc(all, func(a, b sandbox.Destination) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(all)
}

// within puts a parent's name before the field of an *Invalid.
func within(parent string, err error) error {
	if bad, ok := err.(*sandbox.Invalid); ok {
		return &sandbox.Invalid{Field: parent + bad.Field, Expected: bad.Expected, Got: bad.Got}
	}
	return err
}
