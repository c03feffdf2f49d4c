package report

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/checkfu/checkfu/internal/canonical"
)

// MaxTranscriptLine bounds one line of a transcript: five texts of MaskedBytes
// whose every byte is escaped, and what is around them.
const MaxTranscriptLine = 64 << 10

// VerifyTranscript checks a transcript against the digest of its last line
// ("" for none): every line is canonical, numbered, and names the digest of the
// one before it.
// Bounds: linear in the input, MaxTranscriptLine bytes of memory.
// Errors: *InvalidError that names the line that was changed, the first one
// that is not where it should be, or the last one when lines are gone from the
// end; or the reader's.
func VerifyTranscript(in io.Reader, head string) error {
	_, err := verifyTranscript(in, head)
	return err
}

// verifyTranscript also counts the lines.
func verifyTranscript(in io.Reader, head string) (int64, error) {
	var broken *InvalidError // the last line, when what follows does not name its digest
	digest := ""             // of the last line
	lines := bufio.NewReaderSize(in, MaxTranscriptLine)
	for number := int64(1); ; number++ {
		text, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			// A broken link is the fault of the line before it, unless the link
			// after that is broken as well: then the line between them changed.
			if digest != head {
				broken = &InvalidError{TranscriptFile, number - 1, "", "the digest " + named(head), named(digest)}
			}
			return number - 1, orNil(broken)
		}
		var line Line
		fault := decodeLine(text, err, number, &line)
		if broken != nil {
			if fault == nil && line.Previous != digest {
				broken = linkError(number-1, digest, line.Previous)
			}
			return number, broken
		}
		switch {
		case fault != nil:
			return number, fault
		case number == 1 && line.Previous != "":
			return number, &InvalidError{TranscriptFile, 1, "previous", "nothing before the first line", Printable(line.Previous)}
		case line.Previous != digest:
			broken = linkError(number-1, digest, line.Previous)
		}
		digest = canonical.Digest(bytes.TrimSuffix(text, []byte("\n")))
	}
}

// linkError says that the line after number does not name its digest.
func linkError(number int64, digest, previous string) *InvalidError {
	return &InvalidError{TranscriptFile, number, "", "the digest that the next line names, " + Printable(previous), digest}
}

func named(digest string) string {
	if digest == "" {
		return "of no line at all"
	}
	return Printable(digest)
}

// orNil keeps a nil pointer from becoming an error.
func orNil(e *InvalidError) error {
	if e == nil {
		return nil
	}
	return e
}

// decodeLine reads one line as it came from the reader, its line feed included.
func decodeLine(text []byte, err error, number int64, into *Line) error {
	body, whole := bytes.CutSuffix(text, []byte("\n"))
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return &InvalidError{TranscriptFile, number, "", "at most " + strconv.Itoa(MaxTranscriptLine) + " bytes", "more"}
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case !whole:
		return &InvalidError{TranscriptFile, number, "", "a line feed at the end", "the end of the file"}
	}
	if err := canonical.Decode(body, into); err != nil {
		return undecodable(TranscriptFile, number, err)
	}
	if again, err := canonical.Encode(*into); err != nil || !bytes.Equal(again, body) {
		return &InvalidError{TranscriptFile, number, "", "canonical JSON", "another spelling of it"}
	}
	if into.Number != number {
		return &InvalidError{TranscriptFile, number, "number", strconv.FormatInt(number, 10), strconv.FormatInt(into.Number, 10)}
	}
	return nil
}
