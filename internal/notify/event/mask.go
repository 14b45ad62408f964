package event

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const masked = redact.Masked

// pattern matches what looks like a credential. Each match contains one of the literals, ignoring case. Most
// texts contain none, and searching for literals takes a hundredth of the time of the expression.
type pattern struct {
	*regexp.Regexp
	literals []string // upper case
}

// patterns match credentials by their own form. The first group, if any, is kept: it shows what was masked.
var patterns = []pattern{
	{Regexp: regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?` +
		`(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|$)`), literals: []string{"-----BEGIN "}},
	{Regexp: regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'<>?#]+@`),
		literals: []string{"://"}}, // user and password of a URL
	{Regexp: regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}`),
		literals: []string{"BEARER", "BASIC"}},
	// a JSON Web Token
	{Regexp: regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
		literals: []string{"EYJ"}},
	{
		Regexp: regexp.MustCompile(`\b(?:gh[oprsu]_|github_pat_|glpat-|gldt-|glrt-|dckr_pat_|xox[a-z]-|xapp-|` +
			`hvs\.|sk-|npm_|pypi-|AIza|ya29\.)[A-Za-z0-9_-]{16,}`),
		literals: []string{"GH", "GITHUB_PAT_", "GL", "DCKR_PAT_", "XOX", "XAPP-", "HVS.", "SK-", "NPM_", "PYPI-",
			"AIZA",
			"YA29."},
	},
	{Regexp: regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), literals: []string{"AKIA", "ASIA"}},
	{Regexp: regexp.MustCompile(`\bAGE-SECRET-KEY-[A-Z0-9-]+`), literals: []string{"AGE-SECRET-KEY-"}},
	{
		Regexp: regexp.MustCompile(`(https://hooks\.slack\.com/)\S+|` +
			`(https://[a-z0-9.-]*discord(?:app)?\.com/api/webhooks/)\S+`),
		literals: []string{"HTTPS://"},
	},
	{
		Regexp: regexp.MustCompile(`([?&](?i:[a-z0-9_-]*(?:token|key|secret|sig|signature|password|credential)` +
			`[a-z0-9_-]*)=)[^\s&"'#]+`),
		literals: []string{"?", "&"},
	},
}

// named matches a value that follows the name of a credential, such as "password: x".
var named = pattern{
	regexp.MustCompile(`(?i)(\b[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|` +
		`private[_-]?key|credential)s?["']?\s?(=|:)\s?["']?)([^\s"',;&{}]{6,})`),
	[]string{"PASSW", "SECRET", "TOKEN", "KEY", "CREDENTIAL"},
}

// replace replaces the matches of the pattern in text. upper is text, or a less masked text, in upper case.
func (p pattern) replace(text, upper string, replacement func(match []string) string) string {
	if !slices.ContainsFunc(p.literals, func(literal string) bool { return strings.Contains(upper, literal) }) {
		return text
	}
	return p.ReplaceAllStringFunc(text, func(match string) string {
		return replacement(p.FindStringSubmatch(match))
	})
}

// toUpper returns text in upper case. Letters that (?i) treats as equal become the same: ſ and s, K and k.
func toUpper(text string) string { return strings.ToUpper(strings.ToLower(text)) }

// Mask replaces what looks like a credential with ***. It is the last line of defence: our own texts contain
// no credentials, texts of third parties may.
func Mask(text string) string {
	upper := toUpper(text)
	for _, p := range patterns {
		text = p.replace(text, upper, func(match []string) string {
			kept := strings.Join(match[1:], "")
			if strings.HasSuffix(match[0], "@") {
				return kept + masked + "@"
			}
			return kept + masked
		})
	}
	return named.replace(text, upper, func(match []string) string {
		if value := match[3]; match[2] == ":" && len(value) < 20 && !strings.ContainsFunc(value, unicode.IsDigit) {
			return match[0] // prose, such as "token: expired"
		}
		return match[1] + masked
	})
}

// maskValue masks a metadata value. The key [Token] does not name a credential.
func maskValue(key, value string) string {
	if key == Token || value == "" {
		return Mask(value)
	}
	if whole := named.FindStringSubmatch(key + "=" + value); whole != nil && whole[1] == key+"=" {
		return masked
	}
	return Mask(value)
}
