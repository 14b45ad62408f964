package diff

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	hidden       = "***"
	hiddenBefore = "*** (before)"
	hiddenAfter  = "*** (after)"
)

// lastApplied is the annotation in which kubectl keeps a copy of the object, secrets and all.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

const secretWord = `(?:password|passwd|passphrase|secret|token|credentials?|(?:api|private|access|signing|encryption)[-_.]?key)s?`

var (
	secretKey  = regexp.MustCompile(`(?i)` + secretWord + `$`)
	assignment = regexp.MustCompile(`(?i)(` + secretWord + `["']?\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,;&}]+)`)
	userInfo   = regexp.MustCompile(`(://)[^/@\s"']+@`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic) +[\w.~+/=-]{6,}`)
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY.*?(?:-----END [A-Z ]*-----|$)`)
)

func isSecret(o *unstructured.Unstructured) bool {
	return o != nil && o.GetKind() == "Secret" && o.GetAPIVersion() == "v1"
}

// mask takes out of two values of a field what may be secret: what a Secret holds, values that go by the name
// of a password or a token, and private keys, credentials of URLs and the like in any text. Values that
// differ only in what is masked are told apart by their masks, which say nothing of the values, not even
// their length.
func (c *comparison) mask(at path, before, after any) (any, any) {
	sensitive := c.secret && (at[0].name == "data" || at[0].name == "stringData") ||
		isSensitive(at) && !holdsMaps(before) && !holdsMaps(after) ||
		len(c.secrets) > 0 && after == nil || c.holds(before) || c.holds(after)
	b, a := c.masked(before, sensitive, hidden), c.masked(after, sensitive, hidden)
	if before != nil && after != nil && same(a, b) {
		return c.masked(before, sensitive, hiddenBefore), c.masked(after, sensitive, hiddenAfter)
	}
	return b, a
}

// shortestSecret is the length from which on a known secret is looked for in other values: a shorter one is everywhere.
const shortestSecret = 4

// holds tells whether a plain value holds a known secret.
func (c *comparison) holds(v any) bool {
	switch v.(type) {
	case nil, map[string]any, []any:
		return false
	}
	text := fmt.Sprint(v)
	return slices.ContainsFunc(c.secrets, func(s string) bool {
		return len(s) >= shortestSecret &&
			strings.Contains(text, s)
	})
}

// isSensitive tells whether a field goes by the name of a secret.
func isSensitive(at path) bool {
	key := at.last(0).name
	item, named := strings.CutPrefix(at.last(1).name, "[name=")
	return key == lastApplied || secretKey.MatchString(key) ||
		key == "value" && named && secretKey.MatchString(strings.Trim(item, `]"`))
}

// holdsMaps tells whether a value has fields of its own: a name such as secret is that of a reference then.
func holdsMaps(v any) bool {
	list, isList := v.([]any)
	_, isMap := v.(map[string]any)
	return isMap || isList && len(list) > 0 && allMaps(list)
}

// masked returns a copy of a value with the mask in place of what may be secret. All of it is if it is sensitive.
func (c *comparison) masked(v any, sensitive bool, mask string) any {
	sensitive = sensitive || c.holds(v)
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		name, _ := v["name"].(string)
		for k, item := range v {
			secret := k == lastApplied || !holdsMaps(item) && secretKey.MatchString(k) ||
				k == "value" && secretKey.MatchString(name)
			out[k] = c.masked(item, sensitive || secret, mask)
		}
		return out
	case []any:
		out := make([]any, len(v))
		flag := false // the item before is a flag that takes a secret
		for n, item := range v {
			out[n] = c.masked(item, sensitive || flag, mask)
			text, _ := item.(string)
			flag = strings.HasPrefix(text, "-") && secretKey.MatchString(text)
		}
		return out
	case nil, bool:
		return v
	case string:
		if sensitive {
			return mask
		}
		v = privateKey.ReplaceAllString(v, mask)
		v = userInfo.ReplaceAllString(v, "${1}"+mask+"@")
		v = bearer.ReplaceAllString(v, "${1} "+mask)
		return assignment.ReplaceAllString(v, "${1}"+mask)
	default:
		if sensitive {
			return mask
		}
		return v
	}
}
