package route

// The headers that carry a credential.
const (
	Authorization = "authorization"
	APIKey        = "x-api-key"
)

// requestHeaders pass to the gateway, beside those of the framing. Who pays
// (organization, project) and what joins two requests (an idempotency key) is
// not the workload's to say: the runs share an account.
var requestHeaders = map[string]bool{
	"accept": true, "content-type": true,
	"anthropic-version": true, "anthropic-beta": true, "openai-beta": true,
	Authorization: true, APIKey: true,
}

// responseHeaders pass to the workload. Cookies, quotas and names of an account
// do not.
var responseHeaders = map[string]bool{
	"content-type": true, "request-id": true, "x-request-id": true,
	"retry-after": true, "retry-after-ms": true, "x-should-retry": true,
}

// RequestHeader reports whether a header, by its name in lower case, passes to
// the gateway.
func RequestHeader(name string) bool { return requestHeaders[name] }

// ResponseHeader reports whether a header, by its name in lower case, passes to
// the workload.
func ResponseHeader(name string) bool { return responseHeaders[name] }

// MaxHeaderValue bounds the value of a header that passes, in bytes.
const MaxHeaderValue = 4 << 10

// HeaderValue reports whether a value may pass: visible ASCII and spaces, of at
// most MaxHeaderValue bytes.
func HeaderValue(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return len(v) <= MaxHeaderValue
}
