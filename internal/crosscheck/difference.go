package crosscheck

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// difference descends into two values of one type to the first leaf in which
// they differ and names it in JSON names: "profile.packages[1].name". It runs
// only after a check has failed, so that the error can point at the field that
// somebody has to fix.
func difference(path string, want, got any) (field, w, g string) {
	return differ(path, reflect.ValueOf(want), reflect.ValueOf(got))
}

func differ(path string, want, got reflect.Value) (string, string, string) {
	switch want.Kind() {
	case reflect.Struct:
		for i := range want.NumField() {
			if !reflect.DeepEqual(want.Field(i).Interface(), got.Field(i).Interface()) && !bothEmptyLists(want.Field(i), got.Field(i)) {
				name, _, _ := strings.Cut(want.Type().Field(i).Tag.Get("json"), ",")
				return differ(path+"."+name, want.Field(i), got.Field(i))
			}
		}
	case reflect.Slice:
		for i := range min(want.Len(), got.Len()) {
			if !reflect.DeepEqual(want.Index(i).Interface(), got.Index(i).Interface()) {
				return differ(path+"["+strconv.Itoa(i)+"]", want.Index(i), got.Index(i))
			}
		}
		return path, elements(want), elements(got)
	}
	return path, spell(want), spell(got)
}

// spell is a leaf for a person, who cannot see an empty text.
func spell(v reflect.Value) string {
	if v.Kind() == reflect.String && v.Len() == 0 {
		return "nothing"
	}
	return fmt.Sprint(v.Interface())
}

// bothEmptyLists: packages and mounts may be nil or empty, which is one form.
// Destinations may not, and are compared where they are all that differs.
func bothEmptyLists(want, got reflect.Value) bool {
	return want.Kind() == reflect.Slice && want.Len() == 0 && got.Len() == 0 &&
		want.Type().Elem().Name() != "Destination"
}

func elements(list reflect.Value) string {
	if list.IsNil() {
		return "no list"
	}
	return "a list of " + strconv.Itoa(list.Len())
}
