package meta

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// InvalidFields returns a message for each field below path that holds text which did not parse, such as
// `spec.interval: "banana" is not a duration such as 10m or 1h30m`, in the order of the fields. It follows structs,
// pointers, slices and maps; at most 10 are returned.
func InvalidFields(path string, v any) []string {
	w := &invalidWalk{}
	w.visit(path, reflect.ValueOf(v))
	return w.found
}

// InvalidSpec returns the messages of [InvalidFields] for the field Spec of an object.
func InvalidSpec(obj any) []string {
	v := reflect.Indirect(reflect.ValueOf(obj))
	if v.Kind() != reflect.Struct {
		return nil
	}
	spec := v.FieldByName("Spec")
	if !spec.IsValid() {
		return nil
	}
	return InvalidFields("spec", spec.Interface())
}

const maxInvalid = 10

type invalidWalk struct{ found []string }

func (w *invalidWalk) visit(path string, v reflect.Value) {
	if len(w.found) == maxInvalid {
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			w.visit(path, v.Elem())
		}
	case reflect.Slice:
		if isScalar(v.Type().Elem()) {
			return // such as the bytes of raw JSON, of which there may be many
		}
		for i := range v.Len() {
			w.visit(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		if isScalar(v.Type().Elem()) {
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			w.visit(fmt.Sprintf("%s.%v", path, key), v.MapIndex(key))
		}
	case reflect.Struct:
		w.visitStruct(path, v)
	}
}

func (w *invalidWalk) visitStruct(path string, v reflect.Value) {
	if checked, ok := v.Interface().(interface{ invalid() string }); ok {
		if problem := checked.invalid(); problem != "" {
			w.found = append(w.found, path+": "+problem)
		}
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && !strings.Contains(options, "inline") {
			w.visit(path+"."+name, v.Field(i))
		} else {
			w.visit(path, v.Field(i))
		}
	}
}

// isScalar reports whether values of the type hold no field that could be invalid.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return false
	default:
		return true
	}
}
