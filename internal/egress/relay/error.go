package relay

import "strconv"

// LogError says that the log could not be written; the relay ends.
type LogError struct {
	Seq int64 // of the line that was lost
	Err error
}

// Error names the line.
func (e *LogError) Error() string {
	return "relay log: line " + strconv.FormatInt(e.Seq, 10) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *LogError) Unwrap() error { return e.Err }
