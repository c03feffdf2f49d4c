package report

import (
	"github.com/checkfu/checkfu/internal/canonical"
	"github.com/checkfu/checkfu/sandbox"
)

// Line is one call into the target, as transcript.ndjson holds it. Environment
// values, standard input and file bytes are not in it, only their sizes and
// digests.
type Line struct {
	Number    int64             `json:"number"` // from 1
	At        sandbox.Timestamp `json:"at"`
	Probe     string            `json:"probe"`
	Operation sandbox.Operation `json:"operation"`
	ID        string            `json:"id,omitzero"`      // what it is about
	Request   string            `json:"request,omitzero"` // canonical JSON, masked, cut at 4 KiB
	Result    string            `json:"result,omitzero"`
	Error     string            `json:"error,omitzero"`
	Ms        int64             `json:"ms"`
	Previous  string            `json:"previous"` // digest of the line before, "" in the first
}

// Transcript is the chain of lines of one run.
// Concurrency: the engine appends from one goroutine at a time.
type Transcript struct {
	lines [][]byte
	head  string
}

// Append numbers, chains and keeps a line. Its texts are made printable and cut
// at MaskedBytes first: the answers and errors of a provider are in it.
// Errors: what canonical.Encode refuses, a number beyond ±2^53-1.
func (t *Transcript) Append(l Line) (int64, error) {
	l.Number, l.Previous = int64(len(t.lines))+1, t.head
	l.At, l.Operation = sandbox.Timestamp(Printable(string(l.At))), sandbox.Operation(Printable(string(l.Operation)))
	for _, text := range []*string{&l.Probe, &l.ID, &l.Request, &l.Result, &l.Error} {
		*text = printable(*text, MaskedBytes)
	}
	encoded, err := canonical.Encode(l)
	if err != nil {
		return 0, err
	}
	t.lines = append(t.lines, encoded)
	t.head = canonical.Digest(encoded)
	return l.Number, nil
}

// Head is the digest of the last line, "" for none.
func (t *Transcript) Head() string { return t.head }

// Lines returns the encoded lines; they must not be changed.
func (t *Transcript) Lines() [][]byte { return t.lines }

// Encode gives transcript.ndjson: the lines, each with a line feed behind it.
func (t *Transcript) Encode() []byte {
	var out []byte
	for _, line := range t.lines {
		out = append(append(out, line...), '\n')
	}
	return out
}
