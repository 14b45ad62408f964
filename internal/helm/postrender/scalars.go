package postrender

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// exactFloat is the largest integer up to which floating-point numbers are exact. Patches of kustomize turn numbers
// into such.
const exactFloat = 1 << 53

// numberPrefix marks a text that stands for a number while kustomize changes an object.
const numberPrefix = "postrender.sluice/number:"

// hideNumbers returns a value in which texts stand for the numbers that kustomize would change.
func hideNumbers(v any) any {
	return replace(v, func(v any) any {
		switch n := v.(type) {
		case int64:
			if n > exactFloat || n < -exactFloat {
				return numberPrefix + strconv.FormatInt(n, 10)
			}
		case float64:
			if math.Abs(n) > exactFloat {
				return numberPrefix + strconv.FormatFloat(n, 'g', -1, 64)
			}
		}
		return v
	})
}

// showNumbers is the inverse of hideNumbers.
func showNumbers(v any) any {
	return replace(v, func(v any) any {
		text, ok := v.(string)
		if digits, hidden := strings.CutPrefix(text, numberPrefix); ok && hidden {
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
				return n
			}
			if n, err := strconv.ParseFloat(digits, 64); err == nil {
				return n
			}
		}
		return v
	})
}

// replace returns a copy of a value in which f replaced the scalars.
func replace(v any, f func(any) any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = replace(value, f)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = replace(value, f)
		}
		return out
	default:
		return f(v)
	}
}

// duplicateKey returns a key that a mapping of a document has twice; empty if there is none.
func duplicateKey(text string) string {
	var root yaml.Node
	if yaml.Unmarshal([]byte(text), &root) != nil {
		return ""
	}
	return duplicateIn(&root)
}

func duplicateIn(n *yaml.Node) string {
	keys := map[string]bool{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode {
			if keys[child.Value] && child.Tag != "!!merge" {
				return child.Value
			}
			keys[child.Value] = true
		}
		if key := duplicateIn(child); key != "" {
			return key
		}
	}
	return ""
}
