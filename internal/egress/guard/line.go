package guard

import (
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/egress/policy"
	"github.com/checkfu/checkfu/sandbox"
)

// Kind is what a line of the log says, one of a closed set.
type Kind string

// The kinds.
const (
	KindStart    Kind = "start"    // the first line: the guard listens
	KindDecision Kind = "decision" // one request
	KindClose    Kind = "close"    // the end of an allowed one
)

// The two decisions.
const (
	Allow = "allow"
	Deny  = "deny"
)

// End is why a tunnel is over, one of a closed set.
type End string

// The ends. All but the first may cut a transfer short, and both sides see a
// reset and no end of file.
const (
	EndDone    End = "done"    // both sides said that they are
	EndReset   End = "reset"   // one side broke off
	EndIdle    End = "idle"    // no byte either way for Limits.IdleSeconds
	EndExpired End = "expired" // the lease is over
	EndStopped End = "stopped" // the guard was told to end
)

// Line is one line of the log. Fields that say nothing are left out. It holds
// no header, no token, no payload, and of a target only host and port.
// Source: grading "The five facts, and the three that cannot be self-attested".
type Line struct {
	V              int64             `json:"v"`              // 1
	Seq            int64             `json:"seq"`            // 1 for the first line, then one more for each
	Prev           string            `json:"prev,omitempty"` // digest of the line before, without its newline; the first has none
	T              sandbox.Timestamp `json:"t"`
	Kind           Kind              `json:"kind"`
	Instance       string            `json:"instance"`
	PolicyRevision sandbox.Digest    `json:"policy_revision"`

	Config string   `json:"config,omitempty"` // start: digest of the configuration
	Listen string   `json:"listen,omitempty"` // start: network and address of the listener
	Notes  []string `json:"notes,omitempty"`  // start: what the process says of itself
	Pins   []Pin    `json:"pins,omitempty"`   // start: those of the configuration

	Raw       string        `json:"raw,omitempty"` // decision: what was asked, see Loggable
	Host      string        `json:"host,omitempty"`
	Port      int64         `json:"port,omitempty"`
	Mode      string        `json:"mode,omitempty"`   // tls or opaque, once the list was asked
	Pinned    bool          `json:"pinned,omitempty"` // its addresses were judged by the pin of the host
	Decision  string        `json:"decision,omitempty"`
	Reason    policy.Reason `json:"reason,omitempty"`     // of a denial
	Status    int64         `json:"status,omitempty"`     // said to the workload; absent if it was told nothing
	Facts     []string      `json:"facts,omitempty"`      // which of the five facts a denial upholds
	Answers   []string      `json:"answers,omitempty"`    // all addresses of the resolver's answers
	Checked   []string      `json:"checked,omitempty"`    // those whose socket was checked before it connected, in order
	Connected string        `json:"connected,omitempty"`  // the peer, checked
	SNI       string        `json:"sni,omitempty"`        // the name in the ClientHello
	ECH       bool          `json:"ech,omitempty"`        // the ClientHello hides a name, or pretends to
	DNSMillis *int64        `json:"dns_ms,omitempty"`     // what the resolver took, if it was asked
	Request   int64         `json:"request,omitempty"`    // close: Seq of its decision
	End       End           `json:"end,omitempty"`        // close
	UpBytes   *int64        `json:"up_bytes,omitempty"`   // close: to the origin
	DownBytes *int64        `json:"down_bytes,omitempty"` // close: to the workload
}

// facts are which of the five facts a denial for this reason upholds: exact
// destination match, connect-time public address, authority separation, default
// deny. That of redirects has no reason of its own: each is a request like any.
var facts = map[policy.Reason][]string{
	policy.ReasonMalformed:          {"D"},
	policy.ReasonMethod:             {"D"},
	policy.ReasonBody:               {"D"},
	policy.ReasonHostHeaderMismatch: {"E"},
	policy.ReasonHostSyntax:         {"E"},
	policy.ReasonLiteral:            {"E", "P"},
	policy.ReasonPortSyntax:         {"E"},
	policy.ReasonNotAllowlisted:     {"E", "D"},
	policy.ReasonPortNotAllowlisted: {"E"},
	policy.ReasonResolveFailed:      {"P"},
	policy.ReasonAnswerNotPublic:    {"P"},
	policy.ReasonAnswerNotPinned:    {"P"},
	policy.ReasonInfraAddress:       {"P", "A"},
	policy.ReasonConnectNotPublic:   {"P"},
	policy.ReasonUpstreamFailed:     nil,
	policy.ReasonSNIMismatch:        {"E"},
	policy.ReasonSNIMissing:         {"E"},
	policy.ReasonECH:                {"E"},
	policy.ReasonLimit:              {"D"},
	policy.ReasonExpired:            {"D"},
}

// Loggable is what the log may keep of a target: whom it names. User
// information, a path, a query and a fragment may be secrets and become an
// asterisk; bytes that are not visible ASCII are escaped; it is cut to
// MaxRawBytes before that.
func Loggable(target string) string {
	if len(target) > MaxRawBytes {
		target = target[:MaxRawBytes]
	}
	scheme, authority, ok := strings.Cut(target, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, authority = "", target
	}
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i+1] + "*"
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = "*" + authority[i:]
	}
	quoted := strconv.QuoteToASCII(scheme + authority)
	return quoted[1 : len(quoted)-1]
}

// asked is the target in a head that may be no head, for the log.
func asked(head string) string {
	line, _, _ := strings.Cut(head, "\r\n")
	_, rest, _ := strings.Cut(line, " ")
	target, _, _ := strings.Cut(rest, " ")
	// A bare LF ends what may be named: behind it are headers.
	target, _, _ = strings.Cut(target, "\n")
	return Loggable(target)
}

// loggableName is a name of a ClientHello as the log may keep it.
func loggableName(name string) string {
	quoted := strconv.QuoteToASCII(name[:min(len(name), MaxRawBytes)])
	return quoted[1 : len(quoted)-1]
}
