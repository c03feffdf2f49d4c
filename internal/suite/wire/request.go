package wire

import (
	"net/http"

	"github.com/checkfu/checkfu/conformance/report"
	"github.com/checkfu/checkfu/internal/probe"
	"github.com/checkfu/checkfu/wire"
)

// requestProbes are of one request and its answer.
func requestProbes() []probe.Probe {
	return []probe.Probe{
		{ID: "wire.revision", Suite: of, Clause: "CF-WI-01", Source: `docs/wire.md "Headers"`,
			Title:    "a request of another revision of the wire is refused by name, with the revisions that are spoken",
			Requires: []report.Token{report.Process},
			Run: func(t *probe.T) {
				a := send(t, request{endpoint: wire.Capabilities, message: wire.Empty{}, change: func(r *http.Request) {
					r.Header.Set(wire.HeaderWire, "checkfu.sandbox-wire.v0")
				}})
				refused(t, "refused", a, wire.TagUnsupported)
			}},
	}
}
