package report

import (
	"bufio"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The bounds of a ratchet file.
const (
	MaxRatchetLine    = 4096  // bytes of one line
	MaxRatchetEntries = 10000 // entries
)

// ExpectedFailure is one entry of a ratchet: a row that is known to fail, where
// that is talked about, and until when the excuse holds.
type ExpectedFailure struct {
	ID      string
	Link    string    // http or https
	Expires time.Time // midnight UTC at the start of the last day on which it counts
	Line    int64     // from 1
}

// Ratchet is a list of expected failures, in the order of the file. It only
// ever gets shorter by itself: an entry that passes is stale.
type Ratchet []ExpectedFailure

const dateLayout = "2006-01-02"

// ParseRatchet reads a list of expected failures: one "ROW-ID LINK YYYY-MM-DD"
// a line, all three required, separated by blanks; empty lines and lines that
// begin with # are comments.
// Bounds: MaxRatchetLine, MaxRatchetEntries.
// Errors: *InvalidError without a file name, or the reader's.
func ParseRatchet(in io.Reader) (Ratchet, error) {
	var list Ratchet
	seen := map[string]int64{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, MaxRatchetLine)
	number := int64(1)
	for ; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		entry, err := parseEntry(text)
		if err != nil {
			err.Line = number
			return nil, err
		}
		entry.Line = number
		refuse := func(field, expected, got string) error {
			err := invalid(field, expected, got)
			err.Line = number
			return err
		}
		if before, twice := seen[entry.ID]; twice {
			return nil, refuse("id", "no id twice", entry.ID+" of line "+strconv.FormatInt(before, 10))
		}
		if len(list) == MaxRatchetEntries {
			return nil, refuse("", "at most "+strconv.Itoa(MaxRatchetEntries)+" entries", "more")
		}
		seen[entry.ID] = number
		list = append(list, entry)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		err := invalid("", "a line of at most "+strconv.Itoa(MaxRatchetLine)+" bytes", "a longer one")
		err.Line = number
		return nil, err
	} else if err != nil {
		return nil, err
	}
	return list, nil
}

func parseEntry(text string) (ExpectedFailure, *InvalidError) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return ExpectedFailure{}, invalid("", "ROW-ID LINK YYYY-MM-DD", text)
	}
	id, link, date := words[0], words[1], words[2]
	if !rowID(id) {
		return ExpectedFailure{}, invalid("id", rowIDForm, id)
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || Printable(link) != link {
		return ExpectedFailure{}, invalid("link", "an http or https address", link)
	}
	expires, err := time.Parse(dateLayout, date)
	if err != nil || expires.Format(dateLayout) != date {
		return ExpectedFailure{}, invalid("expires", "a date YYYY-MM-DD", date)
	}
	return ExpectedFailure{ID: id, Link: link, Expires: expires}, nil
}

// Apply marks the failures of r that the list expects, puts what is stale into
// r.Stale, returns it, and settles r again. An entry is stale from the day after
// its date on (UTC; its failure then counts again), when its row passes, when it
// was not run, and when there is no such row. Under a filter a row that was not
// run proves nothing: such a run is incomplete anyway. A row that could not be
// judged is not stale either.
func (list Ratchet) Apply(r *Report, now time.Time) []Stale {
	all := [][]Row{r.Cases, r.Probes, r.Standing}
	find := func(id string) *Row {
		for _, rows := range all {
			if i := slices.IndexFunc(rows, func(row Row) bool { return row.ID == id }); i >= 0 {
				return &rows[i]
			}
		}
		return nil
	}
	filtered := len(r.Run.Filters) > 0
	r.Stale = nil
	for _, entry := range list {
		row := find(entry.ID)
		if reason := entry.judge(row, filtered, now); reason != "" {
			r.Stale = append(r.Stale, Stale{
				ID: entry.ID, Link: entry.Link, Expires: entry.Expires.Format(dateLayout), Line: entry.Line, Reason: reason,
			})
		} else if row != nil {
			row.Expected = row.Status == Fail || row.Status == Overclaim
		}
	}
	r.Settle()
	return r.Stale
}

// judge says why an entry is stale, or nothing.
func (e ExpectedFailure) judge(row *Row, filtered bool, now time.Time) string {
	switch {
	case row == nil && filtered:
		return ""
	case row == nil:
		return "no row of this run has this id"
	case row.Status == Pass:
		return "passes now: take it off the list"
	case !now.Before(e.Expires.AddDate(0, 0, 1)):
		return "the excuse is past its date " + e.Expires.Format(dateLayout)
	case row.Status == Skip, row.Status == Withheld, row.Status == Blocked:
		if filtered {
			return ""
		}
		return "not run: " + string(row.Status)
	}
	return ""
}
