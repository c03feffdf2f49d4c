package keeper

import "errors"

// Kind is why a session could not be made, called or ended.
type Kind string

// The kinds.
const (
	Exists      Kind = "exists"      // the id is taken
	NotFound    Kind = "not_found"   // there is no such session
	Dead        Kind = "dead"        // its keeper is gone; End removes what it left
	Paused      Kind = "paused"      // it has no machine; a resumption makes one
	Busy        Kind = "busy"        // its keeper, or another command, has it
	Unready     Kind = "unready"     // its starter has not said Keep yet
	Damaged     Kind = "damaged"     // its keeper lives, and its record cannot be read
	Refused     Kind = "refused"     // the keeper could not begin, and says why
	Silent      Kind = "silent"      // the keeper did not answer in time, or died
	ByHand      Kind = "by_hand"     // a keeper without a starter
	Closed      Kind = "closed"      // no tunnel leads into its machine
	NotLive     Kind = "not_live"    // its processes were not kept, and it goes on
	Unremovable Kind = "unremovable" // what there is could not be ended
)

// Error is about one session.
type Error struct {
	Kind      Kind
	SessionID string
	Err       error
}

var sentences = map[Kind]string{
	Exists:      "there is a session of this id already",
	NotFound:    "there is no such session",
	Dead:        "its keeper is gone, and its machine with it",
	Paused:      "it is paused",
	Busy:        "it is in use, or another command is at work on it",
	Unready:     "it is being started",
	Damaged:     "its keeper lives, but its record cannot be read",
	Refused:     "its keeper could not begin",
	Silent:      "its keeper does not answer",
	ByHand:      "a keeper is started by a command that makes a session, and by nobody else",
	Closed:      "there is no way in",
	NotLive:     "it goes on, and was not paused with its processes",
	Unremovable: "it could not be ended",
}

// Error is one line.
func (e *Error) Error() string {
	s := sentences[e.Kind]
	if e.SessionID != "" {
		s = "session " + e.SessionID + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is an *Error of this kind.
func (k Kind) Is(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == k
}
