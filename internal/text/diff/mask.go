package diff

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const (
	masked       = redact.Masked
	maskedBefore = "*** (before)" // used if the values differ only in what is masked
	maskedAfter  = "*** (after)"
)

// lastApplied is the annotation in which kubectl stores a copy of the object, which may contain secrets.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

const secretWord = `(?:password|passwd|passphrase|secret|token|credentials?|` +
	`(?:api|private|access|signing|encryption)[-_.]?key)s?`

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

// Masked returns a copy of a JSON value with what may be secret masked: values of fields that are named like a password
// or a token, and private keys, credentials in URLs and the like in any text. If sensitive is set, all values are
// masked but true and false.
func Masked(v any, sensitive bool) any { return (&comparison{}).masked(v, sensitive, masked) }

// mask returns the two values of a field with secrets masked: seals, the data of a Secret, values of fields that are
// named like a password or a token, and private keys, credentials in URLs and the like in any text. Values
// that differ only in what is masked have different masks. A mask does not depend on the value or its length.
func (c *comparison) mask(at path, before, after any) (any, any) {
	sensitive := c.secret && (at[0].name == "data" || at[0].name == "stringData") ||
		isSensitive(at) && !hasFields(before) && !hasFields(after)
	b, a := c.masked(before, sensitive, masked), c.masked(after, sensitive, masked)
	if before != nil && after != nil && equal(a, b) {
		return c.masked(before, sensitive, maskedBefore), c.masked(after, sensitive, maskedAfter)
	}
	return b, a
}

// isSensitive reports whether a field is named like a secret.
func isSensitive(at path) bool {
	key := at.last(0).name
	item, named := strings.CutPrefix(at.last(1).name, "[name=")
	return key == lastApplied || secretKey.MatchString(key) ||
		key == "value" && named && secretKey.MatchString(strings.Trim(item, `]"`))
}

// hasFields reports whether a value is an object or a list of objects. A field named secret is a reference then.
func hasFields(v any) bool {
	list, isList := v.([]any)
	_, isMap := v.(map[string]any)
	return isMap || isList && len(list) > 0 && allMaps(list)
}

// masked returns a copy of a value with secrets replaced by the mask. If sensitive is set, it replaces all values.
func (c *comparison) masked(v any, sensitive bool, mask string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		name, _ := v["name"].(string)
		for k, item := range v {
			secret := k == lastApplied || !hasFields(item) && secretKey.MatchString(k) ||
				k == "value" && secretKey.MatchString(name)
			out[redact.Text(k)] = c.masked(item, sensitive || secret, mask)
		}
		return out
	case []any:
		out := make([]any, len(v))
		flag := false // the previous item is a flag whose value is a secret
		for n, item := range v {
			out[n] = c.masked(item, sensitive || flag, mask)
			text, _ := item.(string)
			flag = strings.HasPrefix(text, "-") && secretKey.MatchString(text)
		}
		return out
	case nil, bool:
		return v
	case string:
		if sensitive || redact.IsSealed(v) {
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
