package runner

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// shortest is the length in bytes from which a value of the environment is
// hidden: a shorter one ("1", "yes") is part of any text, and no secret.
const shortest = 6

// hidden is an error whose text went through hide.
type hidden struct {
	text string
	err  error
}

func (h *hidden) Error() string { return h.text }
func (h *hidden) Unwrap() error { return h.err }

// hide takes the values of the environment out of an error's text: it comes
// from a provider, which holds them all and may quote one.
func (s Spec) hide(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	was := text
	longestFirst := func(a, b string) int { // one value can be part of another
		return cmp.Or(cmp.Compare(len(s.Environment[b]), len(s.Environment[a])), cmp.Compare(a, b))
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.Environment), longestFirst) {
		value := s.Environment[key]
		if len(value) < shortest {
			continue
		}
		instead := "(value of " + key + ")"
		quoted := strconv.Quote(value)
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], instead)
		text = strings.ReplaceAll(text, value, instead)
	}
	if text == was {
		return err
	}
	return &hidden{text, err}
}
