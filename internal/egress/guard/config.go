package guard

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// ConfigVersion is the version of the schema that this guard reads.
const ConfigVersion = 1

// The policies for encrypted client hellos.
const (
	ECHDeny  = "deny"  // refuse the extension, also one that only pretends (GREASE)
	ECHAllow = "allow" // admit it, and say so in the log: the inner name is not seen
)

// Config is all that a guard knows. It is compiled by whoever starts the guard,
// read once, and never reloaded: another policy revision is another guard.
// Source: design "Egress".
type Config struct {
	V              int64             `json:"v"`               // ConfigVersion
	Instance       string            `json:"instance"`        // the sandbox instance that it serves, an identity
	PolicyRevision sandbox.Digest    `json:"policy_revision"` // of what Allow was compiled from
	Resolver       string            `json:"resolver"`        // the one resolver: a literal address and a port
	Allow          []Entry           `json:"allow"`           // required; an empty list denies all
	Pins           []Pin             `json:"pins,omitempty"`  // only of a guard that builds images; see policy.Pin
	ReservedHosts  []string          `json:"reserved_hosts,omitempty"`
	InfraAddrs     []string          `json:"infra_addrs,omitempty"` // literal addresses; the resolver's and our own need no mention
	ECH            string            `json:"ech,omitempty"`         // ECHDeny, the default, or ECHAllow
	Limits         Limits            `json:"limits,omitzero"`
	ExpiresAt      sandbox.Timestamp `json:"expires_at"` // the lease's end: nothing passes from then on

	digest string `json:"-"` // of the bytes that it was parsed from
}

// Entry is one host with its ports. A host may stand in several entries, a host
// and port in one.
type Entry struct {
	Host  string  `json:"host"`
	Ports []int64 `json:"ports"`          // at least one
	Mode  string  `json:"mode,omitempty"` // tls or opaque; omitted is tls on port 443, else opaque
}

// Pin says where one listed host lives, as policy.Pin does.
type Pin struct {
	Host     string   `json:"host"`
	Prefixes []string `json:"prefixes"` // at least one, as ADDRESS/BITS
}

// Limits are a guard's bounds; a field that is zero or left out has its default,
// which is also the maximum of the first two.
type Limits struct {
	HeadBytes   int64 `json:"head_bytes,omitempty"` // default MaxHeadBytes
	HeadMillis  int64 `json:"head_ms,omitempty"`    // default 5,000
	Tunnels     int64 `json:"tunnels,omitempty"`    // requests past their head, and tunnels; default 1,024
	IdleSeconds int64 `json:"idle_s,omitempty"`     // without a byte either way; default 600
}

// ParseConfig reads a configuration: strict JSON of the closed schema.
// Errors: *canonical.Error for what is no such JSON (unknown, repeated and
// missing keys among it), *sandbox.Invalid for a value that is refused: a
// wildcard, an address or a port 0 in the list, a host and port listed twice,
// a listed host of the plane. No guard starts on either.
func ParseConfig(data []byte) (Config, error) {
	if len(data) > MaxConfigBytes {
		return Config{}, invalid("config", "at most "+strconv.Itoa(MaxConfigBytes)+" bytes", strconv.Itoa(len(data)))
	}
	var c Config
	if err := canonical.Decode(data, &c); err != nil {
		return Config{}, err
	}
	if _, err := c.compile(); err != nil {
		return Config{}, err
	}
	c.digest = canonical.Digest(data)
	return c, nil
}

// Encode gives the canonical bytes that ParseConfig reads.
// Errors: those of ParseConfig.
func (c Config) Encode() ([]byte, error) {
	if _, err := c.compile(); err != nil {
		return nil, err
	}
	return canonical.Encode(c)
}

// Digest is the SHA-256 of the bytes that c was parsed from, or of its canonical
// bytes if it was not; "" if it has none. The log's first line carries it.
func (c Config) Digest() string {
	if c.digest != "" {
		return c.digest
	}
	data, err := canonical.Encode(c)
	if err != nil {
		return ""
	}
	return canonical.Digest(data)
}

// compiled is what a configuration means.
type compiled struct {
	list      policy.List
	pins      policy.Pins
	infra     []netip.Addr
	resolver  netip.AddrPort
	echDenied bool
	headBytes int
	headTime  time.Duration
	tunnels   int
	idle      time.Duration
	expires   time.Time
}

// compile checks all of c.
func (c Config) compile() (compiled, error) {
	fail := func(err error) (compiled, error) { return compiled{}, err }
	if c.V != ConfigVersion {
		return fail(invalid("v", strconv.Itoa(ConfigVersion), strconv.FormatInt(c.V, 10)))
	}
	if err := sandbox.CheckInstanceID("instance", sandbox.InstanceID(c.Instance)); err != nil {
		return fail(err)
	}
	if !c.PolicyRevision.Valid() {
		return fail(invalid("policy_revision", "sha256: and 64 hex digits", string(c.PolicyRevision)))
	}
	resolver, err := netip.ParseAddrPort(c.Resolver)
	if err != nil || resolver.Port() == 0 || resolver.Addr().Is4In6() {
		return fail(invalid("resolver", "a literal address and a port", c.Resolver))
	}
	out := compiled{
		resolver:  resolver,
		echDenied: c.ECH != ECHAllow,
		headBytes: int(orDefault(c.Limits.HeadBytes, MaxHeadBytes)),
		headTime:  time.Duration(orDefault(c.Limits.HeadMillis, headTime.Milliseconds())) * time.Millisecond,
		tunnels:   int(orDefault(c.Limits.Tunnels, DefaultTunnels)),
		idle:      time.Duration(orDefault(c.Limits.IdleSeconds, int64(defaultIdle/time.Second))) * time.Second,
	}
	if c.ECH != "" && c.ECH != ECHDeny && c.ECH != ECHAllow {
		return fail(invalid("ech", "deny or allow", c.ECH))
	}
	if out.expires, err = c.ExpiresAt.Time(); err != nil {
		return fail(invalid("expires_at", "YYYY-MM-DDTHH:MM:SS.mmmZ", string(c.ExpiresAt)))
	}
	if err := c.Limits.check(); err != nil {
		return fail(err)
	}
	if out.list, err = c.allowed(); err != nil {
		return fail(err)
	}
	if out.pins, err = c.pinned(out.list); err != nil {
		return fail(err)
	}
	out.infra = append(out.infra, resolver.Addr())
	for i, text := range c.InfraAddrs {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return fail(invalid(at("infra_addrs", i), "a literal address", text))
		}
		out.infra = append(out.infra, a)
	}
	_, err = policy.NewInfrastructure(out.infra)
	return out, err
}

// allowed compiles the list. An absent one was refused before: it would be nil.
func (c Config) allowed() (policy.List, error) {
	if c.Allow == nil {
		return policy.List{}, invalid("allow", "a list, possibly empty", "absent")
	}
	destinations := []sandbox.Destination{}
	for i, e := range c.Allow {
		if len(e.Ports) == 0 {
			return policy.List{}, invalid(at("allow", i)+".ports", "at least one", "none")
		}
		for _, port := range e.Ports {
			destinations = append(destinations, sandbox.Destination{Host: e.Host, Port: port, Mode: e.Mode})
		}
		if len(destinations) > sandbox.MaxDestinations {
			break // refused below, before a hostile file makes it large
		}
	}
	return policy.Compile(destinations, c.ReservedHosts)
}

// pinned compiles the pins.
func (c Config) pinned(list policy.List) (policy.Pins, error) {
	pins := make([]policy.Pin, len(c.Pins))
	for i, p := range c.Pins {
		pins[i].Host = p.Host
		for k, text := range p.Prefixes {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return policy.Pins{}, invalid(at(at("pins", i)+".prefixes", k), "ADDRESS/BITS", text)
			}
			pins[i].Prefixes = append(pins[i].Prefixes, prefix)
		}
	}
	return policy.CompilePins(pins, list)
}

func (l Limits) check() error {
	for _, f := range []struct {
		name      string
		got, most int64
	}{
		{"head_bytes", l.HeadBytes, MaxHeadBytes},
		{"head_ms", l.HeadMillis, headTime.Milliseconds()},
		{"tunnels", l.Tunnels, MaxTunnels},
		{"idle_s", l.IdleSeconds, MaxIdleSeconds},
	} {
		if f.got < 0 || f.got > f.most {
			return invalid("limits."+f.name, "0 to "+strconv.FormatInt(f.most, 10), strconv.FormatInt(f.got, 10))
		}
	}
	return nil
}

func orDefault(got, otherwise int64) int64 {
	if got == 0 {
		return otherwise
	}
	return got
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func invalid(field, expected, got string) *sandbox.Invalid {
	const most = 200
	if len(got) > most {
		got = got[:most]
	}
	return &sandbox.Invalid{Field: field, Expected: expected, Got: got}
}
