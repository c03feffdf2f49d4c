package report

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/checkfu/checkfu/internal/canonical"
)

// MaskedBytes is the longest text that Mask returns.
const MaskedBytes = 4096

// Masked stands for every environment value.
const Masked = "***"

// errFull ends the walk once there is more text than is kept.
var errFull = errors.New("full")

// Mask writes a request or an answer of the contract for the transcript, as
// canonical JSON without a secret: of every map only the keys are kept (the one
// map of the contract is the environment), of every byte string its length and
// digest, and what is tagged json:"-" is left out. Texts are Printable. What
// goes beyond MaskedBytes is cut between two characters and ends in "…", and is
// then no longer JSON.
// Shapes: structs, slices, strings, booleans, integers, maps by string, and
// pointers to these; a field without a tag goes by its Go name in snake case.
// Errors: a value of another shape; no part of it is in the error.
func Mask(v any) (string, error) {
	var w masker
	if err := w.value(reflect.ValueOf(v)); err != nil && !errors.Is(err, errFull) {
		return "", err
	}
	return printable(string(w.text), MaskedBytes), nil
}

type masker struct{ text []byte }

func (w *masker) value(v reflect.Value) error {
	if len(w.text) > MaskedBytes {
		return errFull
	}
	switch v.Kind() {
	case reflect.String:
		return w.word(v.String())
	case reflect.Bool:
		w.text = strconv.AppendBool(w.text, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.text = strconv.AppendInt(w.text, v.Int(), 10)
	case reflect.Pointer:
		if v.IsNil() {
			return errors.New("mask: a pointer to nothing")
		}
		return w.value(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			w.text = fmt.Appendf(w.text, `{"bytes":%d,"sha256":"%s"}`, v.Len(), canonical.Digest(v.Bytes()))
			return nil
		}
		return w.list('[', ']', v.Len(), func(i int) error { return w.value(v.Index(i)) })
	case reflect.Map:
		return w.environment(v)
	case reflect.Struct:
		return w.object(v)
	default:
		return fmt.Errorf("mask: no form for %v", v.Kind())
	}
	return nil
}

// environment writes the keys. They are escaped to ASCII, where the order of
// bytes is the canonical one.
func (w *masker) environment(v reflect.Value) error {
	if v.Type().Key().Kind() != reflect.String {
		return errors.New("mask: a map that is not by string")
	}
	keys := make([]string, 0, v.Len())
	for _, key := range v.MapKeys() {
		quoted := strconv.QuoteToASCII(Printable(key.String()))
		keys = append(keys, quoted[1:len(quoted)-1])
	}
	slices.Sort(keys)
	return w.list('{', '}', len(keys), func(i int) error { return w.pair(keys[i], reflect.ValueOf(Masked)) })
}

func (w *masker) object(v reflect.Value) error {
	type field struct {
		key   string
		value reflect.Value
	}
	var fields []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, isTagged := f.Tag.Lookup("json")
		key, option, _ := strings.Cut(tag, ",")
		if key == "-" || !f.IsExported() || option != "" && v.Field(i).IsZero() {
			continue
		}
		if !isTagged {
			key = snake(f.Name)
		}
		if f := v.Field(i); f.Kind() != reflect.Pointer || !f.IsNil() {
			fields = append(fields, field{key, f})
		}
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.key, b.key) })
	return w.list('{', '}', len(fields), func(i int) error { return w.pair(fields[i].key, fields[i].value) })
}

// snake gives a Go name the form of the tagged ones.
func snake(name string) string {
	var out []byte
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' && i > 0 {
			out = append(out, '_')
		}
		out = append(out, name[i])
	}
	return strings.ToLower(string(out))
}

func (w *masker) pair(key string, v reflect.Value) error {
	if err := w.word(key); err != nil {
		return err
	}
	w.text = append(w.text, ':')
	return w.value(v)
}

func (w *masker) word(s string) error {
	text, err := canonical.Encode(Printable(s))
	w.text = append(w.text, text...)
	return err
}

func (w *masker) list(open, end byte, n int, each func(i int) error) error {
	w.text = append(w.text, open)
	for i := range n {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		if err := each(i); err != nil {
			return err
		}
	}
	w.text = append(w.text, end)
	return nil
}
