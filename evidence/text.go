package evidence

import (
	"bytes"
	"strconv"

	"github.com/checkfu/checkfu/internal/canonical"
)

// excerpt makes hostile text fit for a log: bounded, quoted where it must be.
func excerpt(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	if !printable(s) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// decode reads data, which is canonical, into v. The bound comes first, so that
// nothing is spent on what is refused anyway; canonical form comes last, because
// only it makes one value one statement.
func decode(data []byte, most int, v any) *Refused {
	if err := read(data, most, v); err != nil {
		return err
	}
	again, err := canonical.Encode(v)
	if err != nil {
		return &Refused{Reason: ReasonMalformed, Err: err}
	}
	if !bytes.Equal(again, data) {
		at := 0
		for at < len(again) && at < len(data) && again[at] == data[at] {
			at++
		}
		return refuse(ReasonNotCanonical, "", "canonical JSON", "another form from byte "+strconv.Itoa(at))
	}
	return nil
}

// read is decode for what people write: any white space and order of keys.
func read(data []byte, most int, v any) *Refused {
	if len(data) > most {
		return refuse(ReasonTooLarge, "", "at most "+strconv.Itoa(most)+" bytes", strconv.Itoa(len(data)))
	}
	if err := canonical.Decode(data, v); err != nil {
		return &Refused{Reason: ReasonMalformed, Err: err}
	}
	return nil
}
