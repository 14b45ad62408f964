package redact

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Replace replaces values of an object by what replace returns for them and the values of another object in the same
// place. Items of lists are matched by what identifies them.
func Replace(o, other *unstructured.Unstructured, replace func(path []string, v, other any) any) {
	replaceIn(o.Object, other.Object, nil, replace)
}

func replaceIn(v, other any, path []string, replace func(path []string, v, other any) any) any {
	switch v := v.(type) {
	case map[string]any:
		o, ok := other.(map[string]any)
		for key := range v {
			if value, found := o[key]; ok && found {
				v[key] = replaceIn(v[key], value, append(path, key), replace)
			}
		}
		return v
	case []any:
		o, ok := other.([]any)
		if !ok {
			return v
		}
		names, values := namesOf(v), map[string]any{}
		for n, name := range namesOf(o) {
			values[name] = o[n]
		}
		for n, name := range names {
			if value, found := values[name]; found {
				v[n] = replaceIn(v[n], value, append(path, name), replace)
			}
		}
		return v
	}
	if isTree(other) {
		return v
	}
	return replace(path, v, other)
}

// At returns the value of an object at a path.
func At(o *unstructured.Unstructured, path []string) (any, bool) {
	if o == nil {
		return nil, false
	}
	var v any = o.Object
	for _, step := range path {
		var next any
		found := false
		switch v := v.(type) {
		case map[string]any:
			next, found = v[step]
		case []any:
			for n, name := range namesOf(v) {
				if name == step {
					next, found = v[n], true
				}
			}
		}
		if !found {
			return nil, false
		}
		v = next
	}
	return v, true
}

// Plain returns a value with masks in place of seals.
func Plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[Text(key)] = Plain(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for n, item := range v {
			out[n] = Plain(item)
		}
		return out
	case string:
		return Text(v)
	}
	return v
}
