package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// validateMetadata checks that labels and annotations are maps of strings. Otherwise, setting another label would
// drop them.
func (f *filesystem) validateMetadata(objects []*unstructured.Unstructured) error {
	var problems []error
	for _, o := range objects {
		metadata, _ := o.Object["metadata"].(map[string]any) // kustomize rejects other types
		for _, name := range []string{"name", "namespace"} {
			if _, ok := metadata[name].(string); !ok && metadata[name] != nil {
				problems = append(problems, refusal("metadata.%s of %s must be text. Quote it", name, f.show(o)))
			}
		}
		for _, name := range []string{"labels", "annotations"} {
			if metadata[name] == nil {
				continue
			}
			values, ok := metadata[name].(map[string]any)
			if !ok {
				problems = append(problems, refusal("metadata.%s of %s must be a map", name, f.show(o)))
			}
			for _, key := range slices.Sorted(maps.Keys(values)) {
				if _, ok := values[key].(string); !ok {
					problems = append(problems, f.notText(o, name, key))
				}
			}
		}
	}
	return join(problems)
}

// notText returns the error for a label or an annotation that is not text.
func (f *filesystem) notText(o *unstructured.Unstructured, field, key string) error {
	err := refusal("metadata.%s[%q] of %s must be text", field, key, f.show(o))
	hint := f.typeHint(o, func(at string) bool {
		return at == "metadata."+field+"."+key || at == fmt.Sprintf("metadata.%s[%q]", field, key)
	})
	if hint != "" {
		return err.WithHint("%s", hint)
	}
	return err.WithHint("Quote it")
}

// validate checks the required fields of all objects and returns the digest of the objects. The error lists
// all problems.
func (f *filesystem) validate(objects []*unstructured.Unstructured) (string, error) {
	h := sha256.New()
	seen := map[identity]int{}
	var problems []error
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		// without the version: objects of different versions are the same object
		id := identity{group: gvk.Group, kind: gvk.Kind, namespace: o.GetNamespace(), name: o.GetName()}
		switch {
		case o.GetAPIVersion() == "" || gvk.Version == "":
			problems = append(problems, refusal("%s has no apiVersion", id))
		case id.name == "":
			problems = append(problems, refusal("%s", nameless(gvk.Kind, o.GetGenerateName())))
		case seen[id] == 1: // report each object once
			var where []string
			if len(problems) < mostProblems { // more are not shown, and finding a location reads all files
				where = f.declaring(id.kind, id.name)
			}
			problems = append(problems, twice(id, where))
		}
		seen[id]++
		problems = append(problems, f.checkCiphertext(o))
		if at, found := imprecise("", o.Object); found {
			problems = append(problems, refusal(
				"%s of %s is a number beyond 64 bits, which would lose digits. Quote it", strings.TrimPrefix(at, "."),
				f.show(o)))
		}
		b, err := o.MarshalJSON()
		if err != nil {
			problems = append(problems, refusal("%s cannot be written", id).Because(err))
		}
		fmt.Fprintf(h, "%d\n", len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), join(problems)
}

// imprecise finds a number that lost digits, because integers in Kubernetes JSON have 64 bits.
func imprecise(field string, v any) (at string, found bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if at, found = imprecise(field+"."+key, v[key]); found {
				return at, true
			}
		}
	case []any:
		for i, value := range v {
			if at, found = imprecise(fmt.Sprintf("%s[%d]", field, i), value); found {
				return at, true
			}
		}
	case float64:
		return field, v == math.Trunc(v) && math.Abs(v) >= math.MaxInt64
	}
	return "", false
}
