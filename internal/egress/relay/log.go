package relay

import (
	"io"
	"sync"
	"time"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Kind is what a line of the log says, one of a closed set.
type Kind string

// The kinds.
const (
	KindStart   Kind = "start"   // the first line: the relay listens
	KindRequest Kind = "request" // the end of a request
)

// Line is one line of the log. Fields that say nothing are left out. It holds no
// token, no header and no body, and of a path only one of the five shapes.
type Line struct {
	V         int64             `json:"v"` // 1
	Seq       int64             `json:"seq"`
	T         sandbox.Timestamp `json:"t"`
	Kind      Kind              `json:"kind"`
	Instance  string            `json:"instance"`
	Config    string            `json:"config,omitempty"` // start: the configuration's digest
	Listen    string            `json:"listen,omitempty"` // start
	Notes     []string          `json:"notes,omitempty"`  // start: what the process says of itself
	Shape     string            `json:"shape,omitempty"`
	Status    int64             `json:"status,omitempty"` // absent where nobody was left to be told
	Reason    route.Reason      `json:"reason,omitempty"` // of a refusal of the relay's own
	End       End               `json:"end,omitempty"`    // of a request that was led to the gateway
	UpBytes   int64             `json:"up_bytes,omitempty"`
	DownBytes int64             `json:"down_bytes,omitempty"`
	Millis    int64             `json:"ms,omitempty"`
}

// End is how a request that was led to the gateway ended, one of a closed set.
type End string

// The ends. All but the first cut the answer short, so that the workload sees a
// broken one and never a whole one that is not.
const (
	EndDone    End = "done"
	EndClient  End = "client"  // the workload went, or does not read
	EndGateway End = "gateway" // the gateway broke off
	EndIdle    End = "idle"    // no byte of the answer for Limits.IdleSeconds
	EndExpired End = "expired" // the lease is over
	EndStopped End = "stopped" // the relay was told to end
)

// journal writes lines. Its first failure is its last write, and ends Serve.
type journal struct {
	instance string
	clock    Clock
	failed   func()

	mu  sync.Mutex
	w   io.Writer
	seq int64
	err error
}

// logTime bounds a Write of a line, where the log has deadlines.
const logTime = 5 * time.Second

func (j *journal) write(l Line) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	l.V, l.Seq, l.T, l.Instance = 1, j.seq+1, sandbox.At(j.clock.Now()), j.instance
	data, err := canonical.Encode(l)
	if err == nil {
		if d, ok := j.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = d.SetWriteDeadline(time.Now().Add(logTime)) // a plain file has none and needs none
		}
		_, err = j.w.Write(append(data, '\n'))
	}
	if err != nil {
		j.err = &LogError{l.Seq, err}
		j.failed()
		return j.err
	}
	j.seq++
	return nil
}

func (j *journal) broken() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}
