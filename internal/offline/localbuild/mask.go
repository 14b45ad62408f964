package localbuild

import (
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/build/decrypt"
)

// HasMasked reports whether a value contains a masked one: only the controller can decrypt what SOPS encrypted, so
// local builds have decrypt.Redacted in its place.
func HasMasked(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			if HasMasked(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, HasMasked)
	case string:
		if strings.Contains(v, decrypt.Redacted) {
			return true
		}
		b, err := base64.StdEncoding.DecodeString(v)
		return err == nil && strings.Contains(string(b), decrypt.Redacted)
	}
	return false
}

// Unmask replaces masked values of an object by those of the live object.
func Unmask(o, live *unstructured.Unstructured) {
	if plain, ok := o.Object["stringData"].(map[string]any); ok && o.GetKind() == "Secret" {
		addStringData(live.Object, plain)
	}
	o.Object, _ = unmasked(o.Object, live.Object).(map[string]any)
}

// addStringData gives a live Secret, which has only data, a stringData with the given keys.
func addStringData(live, keys map[string]any) {
	data, _ := live["data"].(map[string]any)
	plain := map[string]any{}
	for k := range keys {
		text, _ := data[k].(string)
		if b, err := base64.StdEncoding.DecodeString(text); err == nil && text != "" {
			plain[k] = string(b)
		}
	}
	live["stringData"] = plain
}

// unmasked returns a value with masked strings replaced by those of the live value.
func unmasked(v, live any) any {
	switch v := v.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		for key := range v {
			v[key] = unmasked(v[key], l[key])
		}
		return v
	case []any:
		l, _ := live.([]any)
		for i := range min(len(v), len(l)) {
			v[i] = unmasked(v[i], l[i])
		}
		return v
	}
	if text, ok := live.(string); ok && HasMasked(v) {
		return text
	}
	return v
}
