package report

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The elements of junit.xml. Their attributes are what the readers of CI
// systems look at; the root has no "skipped", which some of them refuse.
type junitRoot struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     junitSeconds `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       junitSeconds    `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    junitSeconds `xml:"time,attr"`
	Skipped *junitNote   `xml:"skipped"`
	Failure *junitNote   `xml:"failure"`
	Error   *junitNote   `xml:"error"`
}

type junitNote struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junitSeconds are milliseconds, written as seconds.
type junitSeconds int64

// MarshalText writes three digits after the point.
func (s junitSeconds) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", s/1000, s%1000), nil
}

// JUnit gives junit.xml: a testsuite for each suite that ran and a testcase for
// each row. What makes the exit code but is no row, a leak or a stale entry of
// the ratchet, gets a testcase of its own in the suites "leaks" and "ratchet",
// so that no reader shows a green run that did not end with 0 for them.
// A failure that a ratchet expects is skipped, with a message that says so.
// Source: contract "Conformance".
func JUnit(r Report) ([]byte, error) {
	r = clean(r)
	root := junitRoot{Name: "checkfu sandbox conformance"}
	for _, suite := range append(Suites(), Standing) {
		var cases []junitCase
		for _, row := range r.Rows() {
			if row.Suite == suite {
				cases = append(cases, row.junit())
			}
		}
		root.Suites = append(root.Suites, junitSuite{Name: string(suite), Cases: cases})
	}
	root.Suites = append(root.Suites,
		junitSuite{Name: "leaks", Cases: r.Leaks.junit()}, junitSuite{Name: "ratchet", Cases: junitStale(r.Stale)})
	root.Suites = slices.DeleteFunc(root.Suites, func(s junitSuite) bool { return len(s.Cases) == 0 })
	properties, started := r.properties(), ""
	if r.Run.StartedAt.Valid() {
		started = string(r.Run.StartedAt[:len("2006-01-02T15:04:05")])
	}
	for i := range root.Suites {
		s := &root.Suites[i]
		s.Properties, s.Timestamp = properties, started
		s.count()
		root.Tests, root.Failures, root.Errors = root.Tests+s.Tests, root.Failures+s.Failures, root.Errors+s.Errors
		root.Time += s.Time
	}
	body, err := xml.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xml.Header), body, []byte("\n")), nil
}

// count counts what is there to be written and nothing else.
func (s *junitSuite) count() {
	for _, c := range s.Cases {
		s.Tests++
		s.Time += c.Time
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
}

func (row Row) junit() junitCase {
	c := junitCase{Class: "checkfu.sandbox." + string(row.Suite), Name: row.ID, Time: junitSeconds(max(row.Milliseconds, 0))}
	note := &junitNote{Type: string(row.Status), Message: why(row), Text: row.details()}
	switch row.Status {
	case Pass:
	case Skip:
		c.Skipped = &junitNote{Message: why(row)}
	case Fail, Overclaim:
		if row.Expected {
			c.Skipped = &junitNote{Message: "expected failure: " + why(row), Text: note.Text}
		} else {
			c.Failure = note
		}
	default:
		c.Error = note
	}
	return c
}

// details are the findings as lines, and where the rule stands.
func (row Row) details() string {
	var b strings.Builder
	for _, f := range row.Findings {
		field := ""
		if f.Field != "" {
			field = f.Field + ": "
		}
		fmt.Fprintf(&b, "%s %s: %s%s\n", f.Status, f.Check, field, f.sentence())
		if f.Hint != "" {
			fmt.Fprintf(&b, "  hint: %s\n", f.Hint)
		}
	}
	if row.Clause != "" || row.Source != "" {
		fmt.Fprintf(&b, "%s %s (%s)\n", row.Level, row.Clause, row.Source)
	}
	return b.String()
}

func (l Leaks) junit() []junitCase {
	var out []junitCase
	for _, list := range l.lists() {
		for _, id := range list.ids {
			out = append(out, junitCase{Class: "checkfu.sandbox.leaks", Name: id, Error: &junitNote{Type: "leak", Message: id + " " + list.what}})
		}
	}
	return out
}

func junitStale(stale []Stale) []junitCase {
	var out []junitCase
	for _, s := range stale {
		out = append(out, junitCase{Class: "checkfu.sandbox.ratchet", Name: s.ID, Failure: &junitNote{
			Type: "stale", Message: s.Reason, Text: fmt.Sprintf("line %d: %s, expires %s\n", s.Line, s.Link, s.Expires),
		}})
	}
	return out
}

func (r *Report) properties() []junitProperty {
	var out []junitProperty
	for _, p := range [][2]string{
		{"verdict", string(r.Verdict)},
		{"reason", r.Reason},
		{"exit_code", strconv.FormatInt(r.ExitCode, 10)},
		{"class", r.Class},
		{"provider", r.Subject.Provider},
		{"provider_revision", r.Subject.ProviderRevision},
		{"envelope_sha256", r.Subject.EnvelopeDigest},
		{"suite_revision", r.Suite.Revision},
		{"cases_sha256", r.Suite.CasesDigest},
		{"binary_sha256", r.Suite.BinaryDigest},
		{"matrix_sha256", r.Suite.Mutation.MatrixDigest},
		{"transcript_sha256", r.TranscriptDigest},
		{"seed", r.Run.Seed},
	} {
		if p[1] != "" {
			out = append(out, junitProperty{p[0], p[1]})
		}
	}
	return out
}
