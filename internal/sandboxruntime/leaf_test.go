package sandboxruntime_test

import (
	"reflect"
	"strconv"
	"strings"
)

// leaf is one place in a value that a saboteur can change.
type leaf struct {
	path   string // in JSON names
	change func(root reflect.Value)
}

// leaves names every leaf of v, which also finds a field that somebody adds
// later and forgets to compare: its saboteur then survives.
func leaves(v any) []leaf {
	return descend("", reflect.ValueOf(v), func(root reflect.Value) reflect.Value { return root })
}

func descend(path string, v reflect.Value, reach func(reflect.Value) reflect.Value) []leaf {
	switch v.Kind() {
	case reflect.Struct:
		var all []leaf
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if path != "" {
				name = path + "." + name
			}
			all = append(all, descend(name, v.Field(i), func(root reflect.Value) reflect.Value { return reach(root).Field(i) })...)
		}
		return all
	case reflect.Slice:
		all := []leaf{{path, func(root reflect.Value) { // one short
			list := reach(root)
			list.Set(list.Slice(0, list.Len()-1))
		}}}
		for i := range v.Len() {
			all = append(all, descend(path+"["+strconv.Itoa(i)+"]", v.Index(i), func(root reflect.Value) reflect.Value {
				list := reach(root)
				own := reflect.MakeSlice(list.Type(), list.Len(), list.Len())
				reflect.Copy(own, list)
				list.Set(own) // the original is shared with the request
				return list.Index(i)
			})...)
		}
		return all
	case reflect.Int64:
		return []leaf{{path, func(root reflect.Value) { at := reach(root); at.SetInt(at.Int() + 1) }}}
	}
	return []leaf{{path, func(root reflect.Value) { at := reach(root); at.SetString(at.String() + "x") }}}
}

// sabotage changes one leaf of *v.
func (l leaf) sabotage(v any) { l.change(reflect.ValueOf(v).Elem()) }
