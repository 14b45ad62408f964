package campaign

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// hostileTexts are values that are valid for some schemas and hard to read.
var hostileTexts = []string{"", "a", "banana", "1h", "0s", "-1h", "9999999999999999h", "1h1h1h", "0.0000001ms", "1.5h",
	"99999999999999999999999999ms", "2027-01-01T00:00:00Z", "2027-01-01t00:00:00z", "0000-00-00T00:00:00Z",
	"9999-12-31T23:59:60Z", "2027-01-01T00:00:00.123456789+14:00", "main", "refs/heads/../x", "https://127.0.0.1:1/x",
	"oci://127.0.0.1:1/x", "ssh://git@127.0.0.1:1/x", "http://[::1]:namedport", "s3.amazonaws.com", "*", ">=1.0.0",
	"x.x",
	"{{ .x }}", "${a}", "../../etc/passwd", "./", "\u0000", "é\u202e", "0x10", "1e9", "NaN", "9223372036854775808",
	"sha256:" + "0123456789abcdef", "true", "null", "[]", "object.status.x == 1", "[1].all(x, x)", "latest",
	"apps/v1", "Deployment", "flux-system", "127.0.0.1:1/app", "git", "generic", "slack", "SemVer", "RSA"}

// generate returns an object: an example in which some fields have values that the schema describes.
func generate(k served, random *rand.Rand, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(k.examples[random.IntN(len(k.examples))])}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetFinalizers(nil)
	delete(o.Object, "status")
	spec, isMap := o.Object["spec"].(map[string]any)
	properties := k.schema.Properties["spec"]
	if !isMap || random.IntN(20) == 0 {
		o.Object["spec"] = valueOf(&properties, random, 0)
		return o
	}
	for range 1 + random.IntN(3) {
		mutate(spec, &properties, random)
	}
	return o
}

// mutate sets a field of an object, or of one below it, to a generated value, or removes it.
func mutate(object map[string]any, s *apiextensionsv1.JSONSchemaProps, random *rand.Rand) {
	names := slices.Sorted(maps.Keys(s.Properties))
	if len(names) == 0 {
		return
	}
	name := names[random.IntN(len(names))]
	property := s.Properties[name]
	if below, isMap := object[name].(map[string]any); isMap && random.IntN(3) > 0 {
		mutate(below, &property, random)
		return
	}
	if random.IntN(12) == 0 {
		delete(object, name)
		return
	}
	object[name] = valueOf(&property, random, 0)
}

const maxDepth = 5

// valueOf returns a value that a schema accepts, in most cases.
func valueOf(s *apiextensionsv1.JSONSchemaProps, random *rand.Rand, depth int) any {
	switch {
	case random.IntN(60) == 0: // of another type
		return []any{nil, true, int64(1), "text", []any{}, map[string]any{}}[random.IntN(6)]
	case len(s.Enum) > 0 && random.IntN(20) > 0:
		return strings.Trim(string(s.Enum[random.IntN(len(s.Enum))].Raw), `"`)
	case s.XIntOrString:
		return []any{int64(random.IntN(100)), "50%"}[random.IntN(2)]
	}
	switch s.Type {
	case "object":
		return objectOf(s, random, depth)
	case "array":
		return listOf(s, random, depth)
	case "boolean":
		return random.IntN(2) == 0
	case "integer":
		return numberOf(s, random)
	case "number":
		return random.NormFloat64()
	}
	return textOf(s, random)
}

func objectOf(s *apiextensionsv1.JSONSchemaProps, random *rand.Rand, depth int) any {
	o := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		if slices.Contains(s.Required, name) || depth < maxDepth && random.IntN(4) == 0 {
			o[name] = valueOf(&property, random, depth+1)
		}
	}
	if more := s.AdditionalProperties; more != nil && more.Schema != nil {
		for range random.IntN(3) {
			o[hostileTexts[random.IntN(len(hostileTexts))]] = valueOf(more.Schema, random, depth+1)
		}
	}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		o["x"] = []any{nil, "text", int64(1) << 62, map[string]any{"a": []any{map[string]any{}}}}[random.IntN(4)]
	}
	return o
}

func listOf(s *apiextensionsv1.JSONSchemaProps, random *rand.Rand, depth int) any {
	list := []any{}
	if s.Items == nil || s.Items.Schema == nil {
		return list
	}
	n := random.IntN(3)
	if s.MinItems != nil {
		n = max(n, int(*s.MinItems))
	}
	for range n {
		list = append(list, valueOf(s.Items.Schema, random, depth+1))
	}
	return list
}

func numberOf(s *apiextensionsv1.JSONSchemaProps, random *rand.Rand) any {
	n := []int64{0, 1, -1, 2, 10, 1 << 31, -1 << 31, 1<<63 - 1, -1 << 63, 1 << 53}[random.IntN(10)]
	if s.Format == "int32" {
		n = int64(int32(n))
	}
	if random.IntN(10) == 0 {
		return n
	}
	if s.Minimum != nil {
		n = max(n, int64(*s.Minimum))
	}
	if s.Maximum != nil {
		n = min(n, int64(*s.Maximum))
	}
	return n
}

// textOf returns a text, of those that match the pattern in most cases.
func textOf(s *apiextensionsv1.JSONSchemaProps, random *rand.Rand) any {
	texts := hostileTexts
	if pattern, err := regexp.Compile(s.Pattern); s.Pattern != "" && err == nil && random.IntN(10) > 0 {
		texts = slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return !pattern.MatchString(t) })
	}
	if random.IntN(50) == 0 {
		return strings.Repeat("long ", 1+random.IntN(10_000))
	}
	if len(texts) == 0 {
		return fmt.Sprint("text-", random.IntN(10))
	}
	return texts[random.IntN(len(texts))]
}
