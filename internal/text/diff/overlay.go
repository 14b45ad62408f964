package diff

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Overlay returns a live object with the declared fields set. It approximates an apply without the API
// server: fields that are not declared are kept, and items of lists that are not declared are removed.
func Overlay(live, declared *unstructured.Unstructured) *unstructured.Unstructured {
	out, _ := overlay(live.DeepCopy().Object, declared.DeepCopy().Object).(map[string]any)
	return &unstructured.Unstructured{Object: out}
}

func overlay(live, declared any) any {
	switch d := declared.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return d
		}
		for k, v := range d {
			l[k] = overlay(l[k], v)
		}
		return l
	case []any:
		l, ok := live.([]any)
		if !ok {
			return d
		}
		names, keyed := itemNames(l, d)
		items := byName(names.before, l)
		for n := range d {
			switch {
			case keyed:
				d[n] = overlay(items[names.after[n]], d[n])
			case n < len(l):
				d[n] = overlay(l[n], d[n])
			}
		}
		return d
	default:
		return declared
	}
}
