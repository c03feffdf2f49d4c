package sandboxtest

import (
	"net/http"
	"slices"

	"github.com/checkfu/checkfu/wire"
)

// wireFaults are wrong in how they are spoken to.
func wireFaults() []Saboteur { return slices.Concat(wireRequestFaults(), wireFenceFaults()) }

// wireRequestFaults are wrong in one request and its answer.
func wireRequestFaults() []Saboteur {
	return []Saboteur{
		{ID: "Y1", Fault: "any revision of the wire will do", Kills: "wire.revision", Serve: changed(func(r *http.Request) bool {
			if r.Header.Get(wire.HeaderWire) == wire.Revision {
				return false
			}
			r.Header.Set(wire.HeaderWire, wire.Revision)
			return true
		})},
	}
}

// changed lets change alter each request before the server sees it, and say
// whether that was the fault.
func changed(change func(*http.Request) bool) func(http.Handler, *Env) http.Handler {
	return func(h http.Handler, env *Env) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if change(r) {
				env.Fire()
			}
			h.ServeHTTP(w, r)
		})
	}
}
