package guest

// WireError says which field of a message, argument or record was refused.
type WireError struct {
	Field string
	Want  string
	Got   string
}

func (e *WireError) Error() string {
	got := e.Got
	if len(got) > 200 {
		got = got[:200] + "..."
	}
	return e.Field + ": expected " + e.Want + ", got " + got
}
