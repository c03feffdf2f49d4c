package relay

import (
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// ConfigVersion is the version of the schema that this relay reads.
const ConfigVersion = 1

// Config is all that a relay knows. It is compiled by whoever starts the relay,
// read once, and never reloaded: another lease is another relay.
// Source: design "Egress"; concept "Network posture".
type Config struct {
	V           int64             `json:"v"`               // ConfigVersion
	Instance    string            `json:"instance"`        // the sandbox instance that it serves
	Hosts       []string          `json:"hosts"`           // what Host may say, as in 127.0.0.1:3129; at least one
	Gateway     string            `json:"gateway"`         // unix: and an absolute path, or a literal address and a port
	TokenDigest sandbox.Digest    `json:"token_digest"`    // of its run's token, see route.TokenDigest
	Limits      Limits            `json:"limits,omitzero"` //
	ExpiresAt   sandbox.Timestamp `json:"expires_at"`      // the lease's end: nothing passes from then on
	digest      string            `json:"-"`               // of the bytes that it was parsed from
}

// Limits are a relay's bounds; one that is zero or left out has its default.
type Limits struct {
	BodyBytes   int64 `json:"body_bytes,omitempty"` // of a request; default DefaultBodyBytes
	Requests    int64 `json:"requests,omitempty"`   // at once; default DefaultRequests
	IdleSeconds int64 `json:"idle_s,omitempty"`     // without a byte of the answer; default DefaultIdleSeconds
}

// ParseConfig reads a configuration: strict JSON of the closed schema.
// Errors: *canonical.Error for what is no such JSON (unknown, repeated and
// missing keys among it), *sandbox.Invalid for a value that is refused. No relay
// starts on either.
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

// GatewayAddr is the network and the address of the gateway, for a dialer; both
// are "" for a gateway that ParseConfig refuses.
func (c Config) GatewayAddr() (network, address string) {
	if file, ok := strings.CutPrefix(c.Gateway, "unix:"); ok {
		// The kernel's bound on the path of a socket; no abstract one, which a
		// namespace of files does not hold.
		if len(file) > 107 || !path.IsAbs(file) || path.Clean(file) != file || strings.IndexByte(file, 0) >= 0 {
			return "", ""
		}
		return "unix", file
	}
	// A name would need a resolver, and a zone an interface.
	addr, err := netip.ParseAddrPort(c.Gateway)
	if err != nil || addr.Port() == 0 || addr.Addr().Zone() != "" || addr.Addr().Is4In6() || addr.Addr().IsUnspecified() {
		return "", ""
	}
	return "tcp", addr.String()
}

// compiled is what a configuration means.
type compiled struct {
	hosts            map[string]bool
	network, address string
	token            string
	body             int64
	requests         int
	idle             time.Duration
	expires          time.Time
}

// compile checks all of c.
func (c Config) compile() (out compiled, err error) {
	fail := func(field, expected, got string) (compiled, error) {
		return compiled{}, invalid(field, expected, got)
	}
	if c.V != ConfigVersion {
		return fail("v", strconv.Itoa(ConfigVersion), strconv.FormatInt(c.V, 10))
	}
	if err := sandbox.CheckInstanceID("instance", sandbox.InstanceID(c.Instance)); err != nil {
		return compiled{}, err
	}
	const most = 8
	if len(c.Hosts) == 0 || len(c.Hosts) > most {
		return fail("hosts", "1 to "+strconv.Itoa(most)+" names", strconv.Itoa(len(c.Hosts)))
	}
	out.hosts = map[string]bool{}
	for i, h := range c.Hosts {
		if !hostValue(h) || out.hosts[h] {
			return fail("hosts["+strconv.Itoa(i)+"]", "a host in lower case, perhaps with a port, once", h)
		}
		out.hosts[h] = true
	}
	if out.network, out.address = c.GatewayAddr(); out.network == "" {
		return fail("gateway", "unix:/path, or a literal address and a port", c.Gateway)
	}
	if !c.TokenDigest.Valid() {
		return fail("token_digest", "sha256: and 64 hex digits", "something else") // it may be the token itself
	}
	out.token = string(c.TokenDigest)
	for _, f := range []struct {
		name                 string
		got, otherwise, most int64
	}{
		{"body_bytes", c.Limits.BodyBytes, DefaultBodyBytes, MaxBodyBytes},
		{"requests", c.Limits.Requests, DefaultRequests, MaxRequests},
		{"idle_s", c.Limits.IdleSeconds, DefaultIdleSeconds, MaxIdleSeconds},
	} {
		if f.got < 0 || f.got > f.most {
			return fail("limits."+f.name, "0 to "+strconv.FormatInt(f.most, 10), strconv.FormatInt(f.got, 10))
		}
	}
	out.body = orDefault(c.Limits.BodyBytes, DefaultBodyBytes)
	out.requests = int(orDefault(c.Limits.Requests, DefaultRequests))
	out.idle = time.Duration(orDefault(c.Limits.IdleSeconds, DefaultIdleSeconds)) * time.Second
	if out.expires, err = c.ExpiresAt.Time(); err != nil {
		return fail("expires_at", "YYYY-MM-DDTHH:MM:SS.mmmZ", string(c.ExpiresAt))
	}
	return out, nil
}

// hostValue reports whether h can be what a client puts into Host.
func hostValue(h string) bool {
	for _, b := range []byte(h) {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && !strings.ContainsRune(".-:[]", rune(b)) {
			return false
		}
	}
	return h != "" && len(h) <= 259
}

func orDefault(got, otherwise int64) int64 {
	if got == 0 {
		return otherwise
	}
	return got
}

func invalid(field, expected, got string) *sandbox.Invalid {
	return &sandbox.Invalid{Field: field, Expected: expected, Got: got[:min(len(got), 200)]}
}
