package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Upstream is where requests of one style go. Scheme, host, port and what stands
// before the path are fixed here; nothing of a request changes them.
type Upstream struct {
	Style route.Style
	// URL is https://host[:port][/prefix], to which the shape's path is appended.
	// http is taken for a literal loopback address only: the key would be readable
	// on the way.
	URL string
}

// compile checks an upstream and answers its URL without a slash at the end.
// Errors: *sandbox.Invalid.
func (u Upstream) compile() (*url.URL, error) {
	fail := func(expected string) (*url.URL, error) {
		return nil, &sandbox.Invalid{Field: "upstream." + string(u.Style), Expected: expected, Got: u.URL[:min(len(u.URL), 200)]}
	}
	if u.Style != route.Anthropic && u.Style != route.OpenAI {
		return fail("the style anthropic or openai")
	}
	parsed, err := url.Parse(u.URL)
	if err != nil || parsed.Host == "" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "" || parsed.Opaque != "" || parsed.RawPath != "" {
		return fail("https://host[:port][/prefix]")
	}
	switch parsed.Scheme {
	case "https":
	case "http":
		if a, err := netip.ParseAddr(parsed.Hostname()); err != nil || !a.IsLoopback() {
			return fail("https, or http to a literal loopback address")
		}
	default:
		return fail("https")
	}
	parsed.Path = strings.TrimSuffix(parsed.Path, "/")
	if strings.HasSuffix(parsed.Path, "/v1") {
		return fail("a prefix without /v1, which begins each of the five paths")
	}
	return parsed, nil
}

// newTransport is the way to the upstreams: verified TLS, no proxy of the
// environment, and no encoding that we did not ask for.
func newTransport(roots *x509.CertPool) *http.Transport {
	dialer := net.Dialer{Timeout: connectTime}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTime,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        keepTime,
		MaxResponseHeaderBytes: 64 << 10,
	}
}
