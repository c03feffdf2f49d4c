package canonical

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// access is a closed set as other packages declare them.
type access string

type mount struct {
	MountPath string `json:"mount_path"`
	Access    access `json:"access"`
	Kind      string `json:"kind"`
}

type limits struct {
	CPUMillis int64 `json:"cpu_millis"`
	Processes int32 `json:"max_processes"`
	Tiny      int8  `json:"tiny,omitempty"`
	Count     uint  `json:"count,omitempty"`
}

// node contains itself, for depth.
type node struct {
	Next     *node            `json:"next,omitzero"`
	Children []node           `json:"children,omitzero"`
	Named    map[string]*node `json:"named,omitzero"`
}

// request has one field of every shape.
type request struct {
	Tag         string            `json:"_tag"`
	LeaseEpoch  int64             `json:"lease_epoch"`
	Limits      limits            `json:"limits"`
	Maximum     *limits           `json:"maximum,omitzero"`
	Mounts      []mount           `json:"mounts"`
	Environment map[string]string `json:"environment"`
	Sizes       map[access]uint32 `json:"sizes,omitzero"`
	Durable     bool              `json:"durable,omitzero"`
	Certified   *bool             `json:"certified,omitempty"`
	Argv        []string          `json:"argv,omitzero"`
	Tree        *node             `json:"tree,omitempty"`
	Local       func()            `json:"-"`
}

// reasonOf is the Reason of err, or "" when there is no error.
func reasonOf(t testing.TB, err error) Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error of type %T, want *Error: %v", err, err)
	}
	return e.Reason
}

// nested is depth arrays or objects inside each other.
func nested(open, close string, depth int) string {
	return strings.Repeat(open, depth) + strings.Repeat(close, depth)
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  *Error
		want string
	}{
		{&Error{Path: "mounts[3].access", Reason: ReasonMissingKey, Expected: "string", Offset: 17},
			"canonical: mounts[3].access: missing_key: expected string at byte 17"},
		{&Error{Reason: ReasonNull, Expected: "a value", Got: "nil", Offset: -1},
			"canonical: null: expected a value: got nil"},
		{&Error{Reason: ReasonTooDeep, Offset: 0}, "canonical: too_deep at byte 0"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	err := error(&Error{Path: "a", Reason: ReasonNull})
	if !errors.Is(err, &Error{Reason: ReasonNull}) || errors.Is(err, &Error{Reason: ReasonSyntax}) {
		t.Error("errors.Is must match by reason and by nothing else")
	}
}

func TestUnsupportedTypes(t *testing.T) {
	type Inner struct {
		A string `json:"a"`
	}
	var fields []reflect.StructField
	for i := range maxFields + 1 {
		n := strconv.Itoa(i)
		fields = append(fields, reflect.StructField{
			Name: "F" + n, Type: reflect.TypeFor[string](), Tag: reflect.StructTag(`json:"f` + n + `"`),
		})
	}
	if _, err := Encode(reflect.Zero(reflect.StructOf(fields[:maxFields])).Interface()); err != nil {
		t.Errorf("%d fields: %v", maxFields, err)
	}
	// Made at run time because vet refuses it in source.
	twice := reflect.StructOf([]reflect.StructField{
		{Name: "F", Type: reflect.TypeFor[string](), Tag: `json:"f"`},
		{Name: "G", Type: reflect.TypeFor[string](), Tag: `json:"f"`},
	})
	hidden := reflect.StructOf([]reflect.StructField{
		{Name: "f", PkgPath: "example", Type: reflect.TypeFor[string](), Tag: `json:"f"`},
	})
	for name, v := range map[string]any{
		"unexported, tagged": reflect.New(hidden).Interface(),
		"time":               new(time.Time),
		"float": new(struct {
			F float64 `json:"f"`
		}),
		"interface": new(struct {
			F any `json:"f"`
		}),
		"array":     new([2]int),
		"65 fields": reflect.New(reflect.StructOf(fields)).Interface(),
		"byte slice": new(struct {
			F []byte `json:"f"`
		}),
		"embedded": new(struct{ Inner }),
		"embedded, tagged": new(struct {
			Inner `json:"inner"`
		}),
		"unexported": new(struct{ f string }),
		"no tag":     new(struct{ F string }),
		"no name in tag": new(struct {
			F string `json:",omitempty"`
		}),
		"camel case": new(struct {
			F string `json:"leaseEpoch"`
		}),
		"key with a dash": new(struct {
			F string `json:"a-b"`
		}),
		"string option": new(struct {
			F int `json:"f,string"`
		}),
		"key twice": reflect.New(twice).Interface(),
		"map key":   new(map[int]string),
		"pointer to pointer": new(struct {
			F **string `json:"f,omitzero"`
		}),
		"omitempty struct": new(struct {
			F Inner `json:"f,omitempty"`
		}),
		"channel": new(chan int),
		"uintptr": new(uintptr),
	} {
		if _, err := Encode(v); reasonOf(t, err) != ReasonUnsupportedType {
			t.Errorf("%s: Encode: %v", name, err)
		}
		if err := Decode([]byte(`{}`), v); reasonOf(t, err) != ReasonUnsupportedType {
			t.Errorf("%s: Decode: %v", name, err)
		}
	}
	for name, v := range map[string]any{
		"nil": nil, "no pointer": request{}, "nil pointer": (*request)(nil),
	} {
		if err := Decode([]byte(`{}`), v); reasonOf(t, err) != ReasonUnsupportedType {
			t.Errorf("Decode into %s: %v", name, err)
		}
	}
}
