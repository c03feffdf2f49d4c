package sandboxtest

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// wireRequestFaults are wrong in one request: in who may send it, in its head,
// in its path.
func wireRequestFaults() []Saboteur {
	return []Saboteur{
		{ID: "Y1", Fault: "any revision of the wire will do", Kills: "wire.revision", Serve: changed(func(r *http.Request) bool {
			if r.Header.Get(wire.HeaderWire) == wire.Revision {
				return false
			}
			r.Header.Set(wire.HeaderWire, wire.Revision)
			return true
		})},
		{ID: "Y2", Fault: "a refused revision is told no other", Kills: "wire.revision/supported", Serve: retold(func(_ *http.Request, t *reply) bool {
			return t.instead(`"supported":["`+wire.Revision, `"supported":["`+wire.Revision+`.9`)
		})},
		{ID: "Y3", Fault: "who has no token is let in", Kills: "wire.token/missing", Serve: knowing(authorized(func(values []string, token string) bool {
			return len(values) == 0
		}))},
		{ID: "Y4", Fault: "the beginning of a token is enough", Kills: "wire.token/wrong", Serve: knowing(authorized(func(values []string, token string) bool {
			return len(values) == 1 && values[0] != token && strings.HasPrefix(values[0], token[:16])
		}))},
		{ID: "Y5", Fault: "a token counts under any scheme", Kills: "wire.token/scheme", Serve: knowing(authorized(func(values []string, token string) bool {
			return len(values) == 1 && strings.HasPrefix(values[0], "Basic ")
		}))},
		{ID: "Y6", Fault: "one of two tokens has to be right", Kills: "wire.token/twice", Serve: knowing(authorized(func(values []string, token string) bool {
			return len(values) == 2
		}))},
		{ID: "Y7", Fault: "a wrong token is said back", Kills: "wire.token/no-echo", Serve: retold(func(r *http.Request, t *reply) bool {
			return t.status == http.StatusUnauthorized &&
				t.instead(`"error":{`, `"error":{"message":`+strconv.Quote(r.Header.Get(wire.HeaderAuthorization))+`,`)
		})},
		{ID: "Y8", Fault: "who may call is asked last", Kills: "wire.token/first", Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, there := wire.ParsePath(r.URL.Path); there || r.Header.Get(wire.HeaderAuthorization) != "" {
					h.ServeHTTP(w, r)
					return
				}
				env.Fire()
				(&wireCall{w: w, r: r}).refuse(&wire.Error{Tag: wire.TagMemberUnknown, Operation: "none"})
			})
		}},
		{ID: "Y9", Fault: "an operation without an id gets one", Kills: "wire.headers/missing", Serve: changed(func(r *http.Request) bool {
			if r.URL.Path != wire.Destroy.Path() || len(r.Header[wire.HeaderOperationID]) > 0 {
				return false
			}
			r.Header.Set(wire.HeaderOperationID, string(wire.NewOperationID()))
			return true
		})},
		{ID: "Y10", Fault: "of two headers the first counts", Kills: "wire.headers/twice", Serve: changed(func(r *http.Request) bool {
			two := false
			for name, values := range r.Header {
				if strings.HasPrefix(name, "Checkfu-Lease") && len(values) > 1 {
					r.Header[name], two = values[:1], true
				}
			}
			return two
		})},
		{ID: "Y11", Fault: "a header that says nothing here is passed over", Kills: "wire.headers/foreign", Serve: changed(func(r *http.Request) bool {
			if r.URL.Path != wire.Capabilities.Path() || r.Header.Get(wire.HeaderLeaseID) == "" {
				return false
			}
			r.Header.Del(wire.HeaderLeaseID)
			return true
		})},
		{ID: "Y12", Fault: "an epoch may be written as one likes", Kills: "wire.headers/form", Serve: changed(func(r *http.Request) bool {
			said := r.Header.Get(wire.HeaderLeaseEpoch)
			n, err := strconv.ParseUint(strings.TrimPrefix(said, "+"), 10, 63)
			if err != nil || strconv.FormatUint(n, 10) == said {
				return false
			}
			r.Header.Set(wire.HeaderLeaseEpoch, strconv.FormatUint(n, 10))
			return true
		})},
		{ID: "Y13", Fault: "a header is refused without its name", Kills: "wire.headers/pointer", Serve: retold(func(_ *http.Request, t *reply) bool {
			return t.instead(`"pointer":"checkfu-`, `"pointer":"header-`)
		})},
		{ID: "Y14", Fault: "a provision fences with the lease in its body", Kills: "wire.lease", Serve: changed(func(r *http.Request) bool {
			var lease struct {
				ID    string `json:"lease_id"`
				Epoch int64  `json:"lease_epoch"`
			}
			if r.URL.Path != wire.Provision.Path() || json.Unmarshal(bodyOf(r), &lease) != nil || lease.ID == r.Header.Get(wire.HeaderLeaseID) {
				return false
			}
			r.Header.Set(wire.HeaderLeaseID, lease.ID)
			return true
		})},
		{ID: "Y15", Fault: "a query string is passed over", Kills: "wire.path/query", Serve: changed(func(r *http.Request) bool {
			was := r.URL.RawQuery != ""
			r.URL.RawQuery = ""
			return was
		})},
		{ID: "Y16", Fault: "a path that is nearly right will do", Kills: "wire.path/alike", Serve: changed(func(r *http.Request) bool {
			near := strings.ToLower(strings.TrimSuffix(r.URL.Path, "/"))
			_, right := wire.ParsePath(r.URL.Path)
			if _, there := wire.ParsePath(near); right || !there {
				return false
			}
			r.URL.Path = near
			return true
		})},
		{ID: "Y17", Fault: "what is not there is a page of a web server", Kills: "wire.path/unknown", Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/destroy" {
					h.ServeHTTP(w, r)
					return
				}
				env.Fire()
				http.NotFound(w, r)
			})
		}},
		{ID: "Y18", Fault: "any method will do", Kills: "wire.path/method", Serve: changed(func(r *http.Request) bool {
			if r.Method == http.MethodPost || r.URL.Path == wire.Capabilities.Path() {
				return false
			}
			r.Method = http.MethodPost
			return true
		})},
		{ID: "Y19", Fault: "any type of body is taken for JSON", Kills: "wire.media/type", Serve: changed(func(r *http.Request) bool {
			if r.URL.Path != wire.Destroy.Path() || slices.Equal(r.Header["Content-Type"], []string{wire.MediaJSON}) {
				return false
			}
			r.Header.Set("Content-Type", wire.MediaJSON)
			return true
		})},
		{ID: "Y20", Fault: "parameters of the type are passed over", Kills: "wire.media/parameters", Serve: changed(func(r *http.Request) bool {
			media, _, more := strings.Cut(r.Header.Get("Content-Type"), ";")
			r.Header.Set("Content-Type", media)
			return more
		})},
		{ID: "Y21", Fault: "a compressed body is unpacked", Kills: "wire.media/compressed", Serve: changed(func(r *http.Request) bool {
			if r.Header.Get("Content-Encoding") != "gzip" {
				return false
			}
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				return false
			}
			body, _ := io.ReadAll(io.LimitReader(z, wire.MaxRequestBytes))
			r.Header.Del("Content-Encoding")
			setBody(r, body)
			return true
		})},
		{ID: "Y22", Fault: "a body is read whole before it is measured", Kills: "wire.limits", Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ContentLength <= 1<<29 {
					h.ServeHTTP(w, r)
					return
				}
				env.Fire()
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					(&wireCall{w: w, r: r}).refuse(&wire.Error{Tag: wire.TagMalformed, Operation: "none", Pointer: "body"})
				}
			})
		}},
		{ID: "Y23", Fault: "one request at a time, from its first byte on", Kills: "wire.dribble", Serve: oneAtATime},
		{ID: "Y24", Fault: "the body of a refused request is the next request", Kills: "wire.connection/body-is-no-request", Serve: smuggles},
		{ID: "Y25", Fault: "capabilities cannot be got", Kills: "wire.members/get", Serve: changed(func(r *http.Request) bool {
			if r.Method != http.MethodGet || r.URL.Path != wire.Capabilities.Path() {
				return false
			}
			r.Method = http.MethodPut
			return true
		})},
		{ID: "Y26", Fault: "who calls an absent member is hung up on", Kills: "wire.members", Wrap: func(p sandbox.Provider, env *Env) sandbox.Provider {
			return Override{Provider: p, Members: func(o *sandbox.Optional) { o.ListProjectDir = nil }}
		}, Serve: func(h http.Handler, env *Env) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == wire.ListProjectDir.Path() {
					env.Fire()
					panic(http.ErrAbortHandler)
				}
				h.ServeHTTP(w, r)
			})
		}},
		{ID: "Y27", Fault: "a member that is not listed is served all the same", Kills: "wire.members/absent", Serve: retold(func(r *http.Request, t *reply) bool {
			return r.URL.Path == wire.Capabilities.Path() && t.instead(`"list_project_dir",`, "")
		})},
	}
}

// authorized gives the right token to whoever says what enough takes for it.
func authorized(enough func(values []string, token string) bool) func(token string, r *http.Request) bool {
	return func(token string, r *http.Request) bool {
		if !enough(r.Header[wire.HeaderAuthorization], token) {
			return false
		}
		r.Header.Set(wire.HeaderAuthorization, token)
		return true
	}
}

// oneAtATime turns everybody away while the body of one request comes.
func oneAtATime(h http.Handler, env *Env) http.Handler {
	busy := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.Capabilities.Path() {
			h.ServeHTTP(w, r)
			return
		}
		select {
		case busy <- struct{}{}:
			bodyOf(r)
			<-busy
			h.ServeHTTP(w, r)
		default:
			env.Fire()
			(&wireCall{w: w, r: r}).refuse(&wire.Error{Tag: wire.TagOverloaded, Operation: "capabilities", RetryAfterMS: 1})
		}
	})
}

// smuggles answers a request to nobody without taking its body, which is then
// read as a request of its own.
func smuggles(h http.Handler, env *Env) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, there := wire.ParsePath(r.URL.Path); there || r.ContentLength < 256 { // less is no request of this wire
			h.ServeHTTP(w, r)
			return
		}
		r.Body = http.NoBody
		first := listen(h, r)
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		env.Fire()
		first.write(buffered)
		for buffered.Flush() == nil {
			next, err := http.ReadRequest(buffered.Reader)
			if err != nil {
				return
			}
			listen(h, next).write(buffered)
			if next.Close {
				_ = buffered.Flush()
				return
			}
		}
	})
}

// write writes the answer as it stands on a connection.
func (t *reply) write(w io.Writer) {
	r := http.Response{ProtoMajor: 1, ProtoMinor: 1, StatusCode: t.status, Header: t.header, ContentLength: int64(t.body.Len()), Body: io.NopCloser(&t.body)}
	_ = r.Write(w) // who has gone, has gone
}
