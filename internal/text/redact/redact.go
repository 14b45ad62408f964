// Package redact decides what of a value may be shown to people. A value of a Secret is not text to be searched for: a
// template may encode, cut or join it. So objects are rendered a second time with a placeholder in place of each value
// of a Secret, and only what both renders have in common is shown. All else is replaced by a seal, which says whether a
// value changed, and never what it is. The package sends no requests.
package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Masked stands for a value that is not shown.
const Masked = "***"

// MinLength is the length of the shortest text that is searched in messages. Shorter ones occur by chance.
const MinLength = 4

// sealPrefix begins a seal. No text of an API object has it by chance, as it contains a control character.
const sealPrefix = Masked + "\x00"

// processKey makes seals useless to others: they cannot compare a seal with the seal of a guess.
var processKey = func() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never returns an error
	return key
}()

// Seal returns what stands for a value: equal values have equal seals in this process.
func Seal(v any) string {
	h := hmac.New(sha256.New, processKey)
	if err := json.NewEncoder(h).Encode(v); err != nil {
		return sealPrefix // not a value of an API object
	}
	return sealPrefix + hex.EncodeToString(h.Sum(nil)[:16])
}

// IsSealed reports whether a value is a seal.
func IsSealed(v any) bool {
	text, ok := v.(string)
	return ok && strings.HasPrefix(text, sealPrefix)
}

var seals = regexp.MustCompile(`\*\*\*\x00[0-9a-f]*`)

// Text returns a text with seals and with whole secrets replaced, also as Go quotes them. It is for texts that others
// compose, such as messages of an API server, in addition to what a [Veil] hides.
func Text(text string, secrets ...string) string {
	text = seals.ReplaceAllString(text, Masked)
	all := slices.Clone(secrets)
	for _, s := range secrets {
		if quoted := strconv.Quote(s); len(quoted) != len(s)+2 {
			all = append(all, quoted[1:len(quoted)-1])
		}
	}
	longestFirst := slices.SortedFunc(slices.Values(all), func(a, b string) int { return len(b) - len(a) })
	for _, s := range longestFirst { // one may be part of another
		if len(s) >= MinLength {
			text = strings.ReplaceAll(text, s, Masked)
		}
	}
	return text
}
