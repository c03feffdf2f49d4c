package canonical

import "time"

// timestampForm is the form that JavaScript's Date.toISOString writes; the Z is
// a literal.
const timestampForm = "2006-01-02T15:04:05.000Z"

const timestampWords = "YYYY-MM-DDTHH:MM:SS.mmmZ, years 1970..9999"

// Timestamp gives the canonical form of t: UTC, exactly three fraction digits,
// what is finer than a millisecond cut off (so never later than t).
// Errors: *Error with ReasonOutOfRange when the year in UTC is not 1970 to 9999.
// Source: contract "Bounds".
func Timestamp(t time.Time) (string, error) {
	t = t.UTC()
	if !yearInRange(t) {
		return "", refuse(ReasonOutOfRange, timestampWords, "")
	}
	return t.Format(timestampForm), nil
}

// ParseTimestamp reads what Timestamp writes, and only that: parsing and
// formatting again must give the same bytes. This refuses what one or the other
// standard parser takes: 30 February, 24:00, a leap second, a comma fraction, an
// offset, a lower-case z, digits that are not ASCII. The result is in UTC.
// Errors: *Error with ReasonTimestamp or ReasonOutOfRange.
// Source: contract "Bounds".
func ParseTimestamp(s string) (time.Time, error) {
	if len(s) != len(timestampForm) {
		return time.Time{}, refuse(ReasonTimestamp, timestampWords, excerpt(s))
	}
	t, err := time.Parse(timestampForm, s)
	if err != nil || t.Format(timestampForm) != s {
		return time.Time{}, refuse(ReasonTimestamp, timestampWords, excerpt(s))
	}
	if !yearInRange(t) {
		return time.Time{}, refuse(ReasonOutOfRange, timestampWords, excerpt(s))
	}
	return t, nil
}

func yearInRange(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 9999 }
