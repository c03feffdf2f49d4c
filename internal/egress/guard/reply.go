package guard

import (
	"strconv"

	"github.com/checkfu/checkfu/internal/egress/policy"
)

// established is the whole answer to an allowed request.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// phrases are the statuses that a refusal may have.
var phrases = map[int]string{
	400: "Bad Request",
	403: "Forbidden",
	405: "Method Not Allowed",
	408: "Request Timeout",
	431: "Request Header Fields Too Large",
	502: "Bad Gateway",
	503: "Service Unavailable",
	504: "Gateway Timeout",
}

// denial is the whole answer to a refused request: status and reason, which are
// of closed sets. No address and no word of the request is in it.
func denial(status int, reason policy.Reason) string {
	body := "refused by the egress policy: " + string(reason) + "\n"
	head := "HTTP/1.1 " + strconv.Itoa(status) + " " + phrases[status] + "\r\n"
	if status == 405 {
		head += "Allow: CONNECT\r\n"
	}
	return head + "Connection: close\r\nContent-Type: text/plain\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// unaccounted is the answer while the log cannot be written. It has no reason:
// there is no line that could carry one.
const unaccounted = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
