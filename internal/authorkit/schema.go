package authorkit

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/checkfu/checkfu/sandbox"
	"github.com/checkfu/checkfu/wire"
)

// Schema is a JSON Schema (2020-12), or a part of one.
type Schema = map[string]any

// dialect is the only one that is spoken here.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// definitions are named schemas: the values of $defs.
type definitions map[string]Schema

// names are the definitions whose Go type has a name that another type has too.
var names = map[reflect.Type]string{
	reflect.TypeFor[sandbox.ProcessRequest](): "LiveProcess",
}

func nameOf(t reflect.Type) string {
	if name, ok := names[t]; ok {
		return name
	}
	return t.Name()
}

func reference(name string) Schema { return Schema{"$ref": "#/$defs/" + name} }

// define adds the schema of the struct t, and of all that it refers to.
func (d definitions) define(t reflect.Type) Schema {
	name := nameOf(t)
	if _, ok := d[name]; ok {
		return reference(name)
	}
	d[name] = nil // what refers to itself finds it
	properties, required := Schema{}, []any{}
	for i := range t.NumField() {
		key, option, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if key == "-" {
			continue // bytes, which travel as frames
		}
		properties[key] = d.field(name+"."+key, t.Field(i).Type)
		if option == "" {
			required = append(required, key)
		}
	}
	s := Schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	for key, more := range unions[name] {
		s[key] = more
	}
	d[name] = s
	return reference(name)
}

// field is the schema of one field, or of an element of it. Every text and
// every number has a rule of its own in the tables, so that a new field cannot
// slip in without one.
func (d definitions) field(place string, t reflect.Type) Schema {
	if rule, ok := rules[place]; ok {
		return d.use(rule)
	}
	if words, ok := closed[t]; ok {
		d[t.Name()] = Schema{"enum": words}
		return reference(t.Name())
	}
	if rule, ok := forms[t]; ok {
		return d.use(rule)
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Pointer:
		return d.field(place, t.Elem())
	case reflect.Struct:
		return d.define(t)
	case reflect.Slice:
		s := Schema{"type": "array", "items": d.field(place+"[]", t.Elem())}
		bounds, ok := lists[place]
		if !ok {
			break
		}
		for key, more := range bounds {
			s[key] = more
		}
		return s
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": d.field(place+"[]", t.Elem()),
			"propertyNames": d.use("EnvironmentKey"), "maxProperties": sandbox.MaxEnvironment}
	}
	panic(fmt.Sprintf("authorkit: no rule for %s, a %s", place, t))
}

// use refers to a text form by its name; anything else is a schema already.
func (d definitions) use(rule any) Schema {
	name, ok := rule.(string)
	if !ok {
		return rule.(Schema)
	}
	form, ok := texts[name]
	if !ok {
		panic("authorkit: no form is called " + name)
	}
	d[name] = form
	return reference(name)
}

// Schemas returns the schema of every message and of the error body, by name.
// Each is whole: it refers to nothing outside itself.
func Schemas() map[string]Schema {
	all := map[string]Schema{}
	for _, m := range Messages() {
		d := definitions{}
		d.define(m.Type)
		all[m.Name] = d.whole(m.Name)
	}
	d := definitions{ErrorName: nil}
	d[ErrorName] = d.errorBody()
	all[ErrorName] = d.whole(ErrorName)
	return all
}

// whole moves the definition called name to the outside. A type that refers to
// itself would need it in both places; there is none.
func (d definitions) whole(name string) Schema {
	s := d[name]
	delete(d, name)
	out := Schema{"$schema": dialect, "$id": identity(name), "title": name, "description": descriptions()[name]}
	for key, value := range s {
		out[key] = value
	}
	if len(d) > 0 {
		out["$defs"] = d
	}
	return out
}

// identity is the $id of a schema: a name, not an address. The namespace of a
// URN has no dots, and there are validators that insist on it.
func identity(name string) string {
	return "urn:" + strings.Replace(wire.Revision, ".", ":", 1) + ":" + name
}

// Bundle returns one schema with every message as a definition, and the list of
// messages. It is what the revision of the schemas is a digest of.
func Bundle() Schema {
	d := definitions{ErrorName: nil}
	d[ErrorName] = d.errorBody()
	for _, m := range Messages() {
		d.define(m.Type)
	}
	for name, text := range descriptions() {
		described := Schema{"description": text}
		for key, value := range d[name] {
			described[key] = value
		}
		d[name] = described
	}
	return Schema{"$schema": dialect, "$id": identity("bundle"), "title": "bundle",
		"description": "Every message of " + wire.Revision + ", as definitions. No value is an instance of the bundle itself.",
		"not":         Schema{}, "$defs": d}
}

// descriptions say of each message where it stands.
func descriptions() map[string]string {
	all := map[string]string{ErrorName: "an error body: what every status from 400 on carries, and the error frame"}
	add := func(name, where string) {
		switch {
		case name == "":
		case all[name] == "":
			all[name] = where
		default:
			all[name] += "; " + where
		}
	}
	for _, e := range wire.Endpoints() {
		t, _ := e.Traits()
		s := SpeechOf(e)
		if t.FramedRequest {
			add(s.Request, "call of "+string(e))
		} else {
			add(s.Request, "request of "+string(e))
		}
		if t.FramedResponse {
			add(s.Item, "item of "+string(e))
			add(s.Answer, "result of "+string(e))
		} else {
			add(s.Answer, "answer of "+string(e))
		}
	}
	for _, t := range wire.Types() {
		if name := frameNames[t]; name.message != ErrorName {
			add(name.message, name.name+" frame")
		}
	}
	add("Running", "body of a 202: the operation goes on, ask operation")
	return all
}
