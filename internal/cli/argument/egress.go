package argument

import (
	"errors"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// Allow reads HOST:PORT: one exact name, which is made lower case, and one port.
// Port 443 is TLS to that name, another is whatever the two sides speak.
// Errors: *Error, with what is wrong and what to write instead.
func Allow(s string) (sandbox.Destination, error) { return Destination("--allow", s) }

// Destination is Allow for the value of another flag.
// Errors: *Error.
func Destination(flag, s string) (sandbox.Destination, error) {
	const form = "HOST:PORT, as in api.example.com:443"
	fail := func(hint string) (sandbox.Destination, error) {
		return sandbox.Destination{}, Unexpected(flag, form+hint, s)
	}
	switch {
	case strings.ContainsAny(s, "/@?#"):
		return fail(" (no scheme, user or path)")
	case strings.Contains(s, "*"):
		return fail(" (no wildcard: name each host)")
	case s != "" && !strings.Contains(s, ":"):
		return fail(" (the port too: 443 for https)")
	}
	target, err := policy.ParseTarget(s)
	switch {
	case errors.Is(err, policy.ReasonLiteral):
		return fail(" (a name and no address)")
	case errors.Is(err, policy.ReasonPortSyntax):
		return fail(" (a port from 1 to 65535)")
	case err != nil:
		return fail("")
	}
	d := sandbox.Destination{Host: target.Host, Port: int64(target.Port)}
	if d.Validate() != nil {
		return fail("")
	}
	return d, nil
}
