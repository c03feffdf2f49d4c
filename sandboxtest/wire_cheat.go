package sandboxtest

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"regexp"

	"github.com/checkfu/checkfu/wire"
)

// wireCheats answer in ways that only a wire has, and that would be believed by
// whoever reads loosely.
func wireCheats() []Saboteur {
	of := func(e wire.Endpoint, change func(*reply) bool) func(http.Handler, *Env) http.Handler {
		return retold(func(r *http.Request, a *reply) bool { return r.URL.Path == e.Path() && change(a) })
	}
	return []Saboteur{
		{ID: "V3", Fault: "status 200 with an error in the body", Kills: "errors.closed/kind", Serve: of(wire.Execute, func(a *reply) bool {
			was := a.status != http.StatusOK
			a.status = http.StatusOK
			return was
		})},
		{ID: "V4", Fault: "a key twice in one object", Kills: "errors.closed/kind", Serve: of(wire.Provision, func(a *reply) bool {
			return a.instead(`"instance_id":`, `"instance_id":"another","instance_id":`)
		})},
		{ID: "V5", Fault: "the answer carries another request's id", Kills: "errors.closed/kind", Serve: of(wire.Activate, func(a *reply) bool {
			said := a.body.String()
			a.say(operationID.ReplaceAllString(said, string(wire.NewOperationID())))
			return said != a.body.String()
		})},
		{ID: "V6", Fault: "a compressed body of little that unpacks to much", Kills: "errors.closed/kind", Serve: of(wire.Destroy, func(a *reply) bool {
			var small bytes.Buffer
			z := gzip.NewWriter(&small)
			_, _ = z.Write(a.body.Bytes()) // memory takes everything
			_, _ = z.Write(bytes.Repeat([]byte(" "), 1<<20))
			_ = z.Close()
			a.header.Set("Content-Encoding", "gzip")
			a.say(small.String())
			return true
		})},
		{ID: "V7", Fault: "a body that drips", Kills: "calls.answered", Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != wire.ReadFile.Path() {
					h.ServeHTTP(w, r)
					return
				}
				a := listen(h, r)
				env.Fire()
				for name, values := range a.header {
					w.Header()[name] = values
				}
				for _, b := range a.body.Bytes()[:a.body.Len()/2] { // the rest would take days
					_, _ = w.Write([]byte{b})
					_ = http.NewResponseController(w).Flush()
				}
				env.Hang()
			})
		}},
	}
}

var operationID = regexp.MustCompile(`op_[0-9a-f]{32}`)
