package gateway

import (
	"io"
	"strconv"
	"sync"

	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/internal/egress/route"
	"github.com/checkfu/checkfu/sandbox"
)

// Line is one line of the log: a request and what it used. It holds no token, no
// key, no header and no body; of a body only the name of the model. Fields that
// say nothing are left out.
type Line struct {
	V          int64             `json:"v"` // 1
	Seq        int64             `json:"seq"`
	T          sandbox.Timestamp `json:"t"`
	Kind       string            `json:"kind"`             // start or request
	Listen     string            `json:"listen,omitempty"` // start
	RunID      string            `json:"run_id,omitempty"`
	LeaseID    string            `json:"lease_id,omitempty"`
	LeaseEpoch int64             `json:"lease_epoch,omitempty"`
	Shape      string            `json:"shape,omitempty"`
	Style      route.Style       `json:"style,omitempty"`
	Model      string            `json:"model,omitempty"`
	Status     int64             `json:"status,omitempty"`
	Upstream   int64             `json:"upstream_status,omitempty"` // what it said, where that was not passed on
	Reason     route.Reason      `json:"reason,omitempty"`
	Cut        bool              `json:"cut,omitempty"` // the answer did not come to its end
	Usage      Usage             `json:"usage,omitzero"`
	Millis     int64             `json:"ms,omitempty"`
}

// LogError says that the log could not be written. What was used after that
// nobody could account for, so nothing is served.
type LogError struct {
	Seq int64 // of the line that was lost
	Err error
}

// Error names the line.
func (e *LogError) Error() string {
	return "gateway log: line " + strconv.FormatInt(e.Seq, 10) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *LogError) Unwrap() error { return e.Err }

// journal writes lines. Its first failure is its last write.
type journal struct {
	clock  Clock
	failed chan struct{} // closed at the first failure

	mu  sync.Mutex
	w   io.Writer
	seq int64
	err error
}

func (j *journal) write(l Line) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	l.V, l.Seq, l.T = 1, j.seq+1, sandbox.At(j.clock.Now())
	data, err := canonical.Encode(l)
	if err == nil {
		_, err = j.w.Write(append(data, '\n'))
	}
	if err != nil {
		j.err = &LogError{l.Seq, err}
		close(j.failed)
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
