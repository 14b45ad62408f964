// Package schema checks objects against the definitions of their kinds, as an API server does before it stores them:
// those of releases of Kubernetes, of Sluice, and of CustomResourceDefinitions. It does not evaluate rules in CEL, nor
// what only the code of the API server or webhooks know.
package schema

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Rules that problems break.
const (
	UnknownField = "unknown-field"
	WrongType    = "wrong-type"
	Required     = "required-field"
	WrongValue   = "wrong-value"
	UnknownKind  = "unknown-kind"
)

// Problem is why an API server would refuse an object.
type Problem struct {
	Rule    string
	Path    string // of the field, such as spec.containers[0].image; empty for the object
	Message string
}

// Schema is the definition of a value: a schema of OpenAPI version 2, or of a CustomResourceDefinition.
type Schema struct {
	Ref        string             `json:"$ref"`
	Type       string             `json:"type"`
	Format     string             `json:"format"`
	Properties map[string]*Schema `json:"properties"`
	Additional *orBool            `json:"additionalProperties"`
	Items      *Schema            `json:"items"`
	Required   []string           `json:"required"`
	Enum       []any              `json:"enum"`

	Pattern          string    `json:"pattern"`
	Minimum          *float64  `json:"minimum"`
	Maximum          *float64  `json:"maximum"`
	ExclusiveMinimum bool      `json:"exclusiveMinimum"`
	ExclusiveMaximum bool      `json:"exclusiveMaximum"`
	MinLength        *int      `json:"minLength"`
	MaxLength        *int      `json:"maxLength"`
	MinItems         *int      `json:"minItems"`
	MaxItems         *int      `json:"maxItems"`
	MinProperties    *int      `json:"minProperties"`
	MaxProperties    *int      `json:"maxProperties"`
	AllOf            []*Schema `json:"allOf"`
	AnyOf            []*Schema `json:"anyOf"`
	OneOf            []*Schema `json:"oneOf"`
	Not              *Schema   `json:"not"`

	Default     any   `json:"default"`
	Nullable    bool  `json:"nullable"`
	IntOrString bool  `json:"x-kubernetes-int-or-string"`
	Preserve    *bool `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded    bool  `json:"x-kubernetes-embedded-resource"`
}

// orBool is a schema, or whether everything is allowed.
type orBool struct {
	Schema  *Schema
	Allowed bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *orBool) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &o.Allowed) == nil {
		return nil
	}
	o.Allowed, o.Schema = true, &Schema{}
	return json.Unmarshal(b, o.Schema)
}

// check is one check of an object.
type check struct {
	*Definitions
	isCustom bool // the kind is that of a CustomResourceDefinition
	problems []Problem
	depth    int
}

const (
	maxProblems = 100 // of an object
	maxDepth    = 200
)

func (c *check) add(rule, path, format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, Problem{Rule: rule, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// value checks a value. The names in known are fields of the object in addition to those of the schema.
func (c *check) value(s *Schema, v any, path string, known map[string]*Schema) {
	if c.depth++; c.depth > maxDepth {
		return
	}
	defer func() { c.depth-- }()
	s = c.resolve(s)
	if s == nil || v == nil { // an API server drops null, or sets the default
		return
	}
	if !c.isType(s, v, path) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		c.object(s, v, path, known)
	case []any:
		for i, item := range v {
			if s.Items != nil {
				c.value(s.Items, item, fmt.Sprintf("%s[%d]", path, i), nil)
			}
		}
		c.bounds(path, "items", len(v), s.MinItems, s.MaxItems)
	case string:
		c.text(s, v, path)
	case int64:
		c.number(s, float64(v), path)
	case float64:
		c.number(s, v, path)
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e any) bool { return equal(e, v) }) && v != "" {
		c.add(WrongValue, path, "%v is not one of %s", v, list(s.Enum))
	}
	c.combined(s, v, path)
}

// resolve follows references.
func (c *check) resolve(s *Schema) *Schema {
	for n := 0; s != nil && s.Ref != ""; n++ {
		if n > maxDepth {
			return nil
		}
		s = c.named[strings.TrimPrefix(s.Ref, "#/definitions/")]
	}
	return s
}

// isType reports whether a value has the type of the schema, and adds a problem if not.
func (c *check) isType(s *Schema, v any, path string) bool {
	ok := true
	switch {
	case s.IntOrString || s.Format == "int-or-string":
		ok = isText(v) || isInteger(v)
	case s.Format == "quantity":
		ok = isText(v) || isNumber(v)
	case s.Type == "string":
		ok = isText(v)
	case s.Type == "integer":
		ok = isInteger(v)
	case s.Type == "number":
		ok = isNumber(v)
	case s.Type == "boolean":
		_, ok = v.(bool)
	case s.Type == "array":
		_, ok = v.([]any)
	case s.Type == "object":
		_, ok = v.(map[string]any)
	}
	if !ok {
		c.add(WrongType, path, "must be %s, not %s", typeOf(s), nameOf(v))
	}
	return ok
}

func isText(v any) bool { _, ok := v.(string); return ok }

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

func isInteger(v any) bool {
	f, isFloat := v.(float64)
	_, ok := v.(int64)
	return ok || isFloat && f == math.Trunc(f)
}

var articles = map[string]string{"string": "text", "integer": "an integer", "number": "a number",
	"boolean": "true or false", "array": "a list", "object": "a map"}

func typeOf(s *Schema) string {
	switch {
	case s.IntOrString || s.Format == "int-or-string":
		return "an integer or text"
	case s.Format == "quantity":
		return "a quantity"
	}
	return articles[s.Type]
}

func nameOf(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case bool:
		return "true or false: quote it"
	case int64, float64:
		return "a number: quote it"
	case []any:
		return "a list"
	}
	return "a map"
}

// object checks the fields of a map.
func (c *check) object(s *Schema, v map[string]any, path string, known map[string]*Schema) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		at := join(path, name)
		switch field := s.Properties[name]; {
		case known[name] != nil: // metadata is as that of a kind of Kubernetes
			isCustom := c.isCustom
			c.isCustom = false
			c.value(known[name], v[name], at, nil)
			c.isCustom = isCustom
		case field != nil && c.isEmbedded(field):
			c.embedded(field, v[name], at)
		case field != nil:
			c.value(field, v[name], at, nil)
		case s.Additional != nil && s.Additional.Allowed:
			c.value(s.Additional.Schema, v[name], at, nil)
		case len(s.Properties) > 0 || c.isCustom:
			if !isTrue(s.Preserve) && !c.isOpen(s) {
				c.add(UnknownField, at, "unknown field")
			}
		}
	}
	if !strings.HasPrefix(path, "status") {
		for _, name := range s.Required {
			if v[name] == nil && !c.hasDefault(s.Properties[name]) {
				c.add(Required, join(path, name), "is required")
			}
		}
	}
	c.bounds(path, "fields", len(v), s.MinProperties, s.MaxProperties)
}

// hasDefault reports whether a required field may be missing: a truth value of a kind of Kubernetes is false then.
func (c *check) hasDefault(s *Schema) bool {
	return s != nil && (s.Default != nil || !c.isCustom && s.Type == "boolean")
}

// isOpen reports whether an object without fields takes any: that of a kind of Kubernetes does.
func (c *check) isOpen(s *Schema) bool { return !c.isCustom && len(s.Properties) == 0 }

func (c *check) isEmbedded(s *Schema) bool { return c.isCustom && s.Embedded }

// embedded checks an object in a field.
func (c *check) embedded(s *Schema, v any, path string) {
	c.value(s, v, path, map[string]*Schema{"apiVersion": {Type: "string"}, "kind": {Type: "string"},
		"metadata": c.metadata()})
}

func isTrue(b *bool) bool { return b != nil && *b }

// join returns the path of a field.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (c *check) text(s *Schema, v, path string) {
	length := utf8.RuneCountInString(v)
	c.bounds(path, "characters", length, s.MinLength, s.MaxLength)
	switch s.Format {
	case "byte":
		if _, err := base64.StdEncoding.DecodeString(v); err != nil {
			c.add(WrongValue, path, "is not base64")
		}
	case "date-time":
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			c.add(WrongValue, path, "is not a time, such as 2026-01-02T15:04:05Z")
		}
	case "quantity":
		if _, err := resource.ParseQuantity(v); err != nil {
			c.add(WrongValue, path, "%q is not a quantity, such as 100m or 1Gi", v)
		}
	}
	if s.Pattern == "" {
		return
	}
	if re, err := regexp.Compile(s.Pattern); err == nil && !re.MatchString(v) {
		c.add(WrongValue, path, "%q does not match %s", v, s.Pattern)
	}
}

func (c *check) number(s *Schema, v float64, path string) {
	low, high := math.Inf(-1), math.Inf(1)
	if s.Format == "int32" {
		low, high = math.MinInt32, math.MaxInt32
	}
	if s.Minimum != nil {
		low = *s.Minimum
	}
	if s.Maximum != nil {
		high = *s.Maximum
	}
	switch {
	case v < low || v == low && s.ExclusiveMinimum:
		c.add(WrongValue, path, "%v is too small: the minimum is %v", v, low)
	case v > high || v == high && s.ExclusiveMaximum:
		c.add(WrongValue, path, "%v is too large: the maximum is %v", v, high)
	}
}

func (c *check) bounds(path, what string, n int, low, high *int) {
	switch {
	case low != nil && n < *low:
		c.add(WrongValue, path, "has %d %s: the minimum is %d", n, what, *low)
	case high != nil && n > *high:
		c.add(WrongValue, path, "has %d %s: the maximum is %d", n, what, *high)
	}
}

// combined checks what other schemas say about a value. These have no unknown fields, as they only restrict.
func (c *check) combined(s *Schema, v any, path string) {
	for _, other := range s.AllOf {
		c.problems = append(c.problems, c.part(other, v, path)...)
	}
	matches := func(all []*Schema) (n int) {
		for _, other := range all {
			if len(c.part(other, v, path)) == 0 {
				n++
			}
		}
		return n
	}
	if len(s.AnyOf) > 0 && !s.IntOrString && matches(s.AnyOf) == 0 {
		c.add(WrongValue, path, "matches none of the alternatives of its definition")
	}
	if n := matches(s.OneOf); len(s.OneOf) > 0 && n != 1 {
		c.add(WrongValue, path, "matches %d of the alternatives of its definition, and must match 1", n)
	}
	if s.Not != nil && len(c.part(s.Not, v, path)) == 0 {
		c.add(WrongValue, path, "has what its definition forbids")
	}
}

// part returns the problems of a value with a part of a schema, which does not list all fields.
func (c *check) part(s *Schema, v any, path string) []Problem {
	other := &check{Definitions: c.Definitions, isCustom: c.isCustom, depth: c.depth}
	other.value(s, v, path, nil)
	return slices.DeleteFunc(other.problems, func(p Problem) bool { return p.Rule == UnknownField })
}

func equal(a, b any) bool {
	if isNumber(a) && isNumber(b) {
		return fmt.Sprint(a) == fmt.Sprint(b)
	}
	return a == b
}

func list(values []any) string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return strings.Join(all[:min(len(all), 12)], ", ")
}
