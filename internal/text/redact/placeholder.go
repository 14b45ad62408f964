package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Placeholders makes texts that stand for values of Secrets in a render. Values with the same origin and content have
// the same placeholder. Two Placeholders make different ones, so that two renders differ wherever a value has an
// effect. A placeholder has the type that the value has in YAML: a number for a number, JSON for JSON. It says nothing
// about the value but its type, and whether it is empty.
type Placeholders struct {
	key    []byte
	used   bool
	avoids bool // the letters of the value
}

// NewPlaceholders returns placeholders that cannot be predicted.
func NewPlaceholders() *Placeholders {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never returns an error
	return &Placeholders{key: key}
}

// Unlike returns placeholders that have no letter of their value, so that also a short part of one differs from that
// part of the value. This says which letters a value has: a render with them is only compared, and never shown.
func Unlike() *Placeholders {
	p := NewPlaceholders()
	p.avoids = true
	return p
}

// Used reports whether a placeholder was made.
func (p *Placeholders) Used() bool { return p.used }

var (
	wholeNumber = regexp.MustCompile(`^[-+]?[0-9]+$`)
	fraction    = regexp.MustCompile(`^[-+]?[0-9]+\.[0-9]+$`)
)

// Of returns the placeholder of a text. Origin says where the text comes from, such as Secret/apps/db/password. It
// is part of the placeholder, so that an author of templates cannot compare a secret with guesses from other objects.
func (p *Placeholders) Of(origin, value string) string {
	p.used = true
	sum := p.sum(origin, value)
	number := 1 + binary.BigEndian.Uint64(sum)%30000 // also a port
	name := p.letters(sum, value)
	switch trimmed := strings.TrimSpace(value); {
	case trimmed == "", trimmed == "true", trimmed == "false":
		return value // decides what is rendered, and says nothing
	case wholeNumber.MatchString(trimmed):
		return strconv.FormatUint(number, 10)
	case fraction.MatchString(trimmed):
		return strconv.FormatUint(number, 10) + ".5"
	case trimmed[0] == '{' && json.Valid([]byte(trimmed)):
		return `{"` + name + `":{}}`
	case trimmed[0] == '[' && json.Valid([]byte(trimmed)):
		return `["` + name + `"]`
	}
	return name
}

// Value returns the placeholder of a value that may be a number.
func (p *Placeholders) Value(origin string, v any) any {
	switch v := v.(type) {
	case string:
		return p.Of(origin, v)
	case []byte:
		return []byte(p.Of(origin, string(v)))
	case int, int64:
		n, _ := strconv.ParseInt(p.Of(origin, fmt.Sprint(v)), 10, 64) // it is a number
		return n
	case float64:
		if v == math.Trunc(v) { // JSON knows no whole numbers
			n, _ := strconv.ParseFloat(p.Of(origin, strconv.FormatFloat(v, 'f', 0, 64)), 64)
			return n
		}
		n, _ := strconv.ParseFloat(p.Of(origin, strconv.FormatFloat(v, 'f', 1, 64)), 64)
		return n
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = p.Value(origin+"/"+k, item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for n, item := range v {
			out[n] = p.Value(origin+"/"+strconv.Itoa(n), item)
		}
		return out
	}
	return v
}

// Document returns a YAML document with placeholders for its values, and with its keys. A text that is not a map is
// replaced as a whole.
func (p *Placeholders) Document(origin, text string) string {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil || values == nil {
		return p.Of(origin, text)
	}
	out, err := yaml.Marshal(p.Value(origin, values))
	if err != nil {
		return p.Of(origin, text)
	}
	return string(out)
}

// Data returns the data of a Secret with placeholders.
func (p *Placeholders) Data(namespace, name string, data map[string][]byte) map[string][]byte {
	out := make(map[string][]byte, len(data))
	for k, v := range data {
		out[k] = []byte(p.Of("Secret/"+namespace+"/"+name+"/"+k, string(v)))
	}
	return out
}

// Found returns what a template looked up with placeholders for the data of Secrets: one object, or a list.
func (p *Placeholders) Found(found map[string]any) map[string]any {
	if items, ok := found["items"].([]any); ok {
		out := maps.Clone(found)
		list := make([]any, len(items))
		for n, item := range items {
			o, _ := item.(map[string]any)
			list[n] = p.Found(o)
		}
		out["items"] = list
		return out
	}
	if found["kind"] != "Secret" || found["apiVersion"] != "v1" {
		return found
	}
	out := maps.Clone(found)
	metadata, _ := found["metadata"].(map[string]any)
	data, _ := found["data"].(map[string]any)
	hidden := make(map[string]any, len(data))
	for key, v := range data {
		text, _ := v.(string)
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			plain = nil
		}
		hidden[key] = base64.StdEncoding.EncodeToString([]byte(
			p.Of(fmt.Sprintf("Secret/%v/%v/%s", metadata["namespace"], metadata["name"], key), string(plain))))
	}
	out["data"] = hidden
	if annotations, ok := metadata["annotations"].(map[string]any); ok { // kubectl keeps a copy of the data there
		metadata = maps.Clone(metadata)
		metadata["annotations"] = p.Value("annotations", annotations)
		out["metadata"] = metadata
	}
	return out
}

func (p *Placeholders) sum(origin, value string) []byte {
	h := hmac.New(sha256.New, p.key)
	var length [8]byte // so that no two pairs have the same bytes
	binary.BigEndian.PutUint64(length[:], uint64(len(origin)))
	h.Write(length[:])
	h.Write([]byte(origin))
	h.Write([]byte(value))
	return h.Sum(nil)
}

// letters returns a name that is valid wherever Kubernetes takes one.
func (p *Placeholders) letters(sum []byte, value string) string {
	alphabet := "abcdefghijklmnopqrstuvwxyz"
	if lower := strings.ToLower(value); p.avoids {
		left := strings.Map(func(r rune) rune {
			if strings.ContainsRune(lower, r) {
				return -1
			}
			return r
		}, alphabet)
		if left != "" {
			alphabet = left
		}
	}
	out := make([]byte, 0, len(sum))
	for _, b := range sum[8:] {
		out = append(out, alphabet[int(b)%len(alphabet)])
	}
	return string(out)
}
