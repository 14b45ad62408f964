package event

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const masked = "***"

// pattern finds what looks like a credential. What it finds has one of its signs, in capital letters; most
// texts have none, and looking for those takes a hundredth of the time.
type pattern struct {
	*regexp.Regexp
	signs []string
}

// patterns are of credentials that are known by themselves. The first group, if there is one, is kept, as it
// says what was masked.
var patterns = []pattern{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|$)`), []string{"-----BEGIN "}},
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'<>?#]+@`), []string{"://"}}, // user and password of a URL
	{regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}`), []string{"BEARER", "BASIC"}},
	// a JSON Web Token
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), []string{"EYJ"}},
	{
		regexp.MustCompile(`\b(?:gh[oprsu]_|github_pat_|glpat-|gldt-|glrt-|dckr_pat_|xox[a-z]-|xapp-|hvs\.|sk-|npm_|pypi-|AIza|ya29\.)[A-Za-z0-9_-]{16,}`),
		[]string{"GH", "GITHUB_PAT_", "GL", "DCKR_PAT_", "XOX", "XAPP-", "HVS.", "SK-", "NPM_", "PYPI-", "AIZA",
			"YA29."},
	},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`), []string{"AKIA", "ASIA"}},
	{regexp.MustCompile(`\bAGE-SECRET-KEY-[A-Z0-9-]+`), []string{"AGE-SECRET-KEY-"}},
	{
		regexp.MustCompile(`(https://hooks\.slack\.com/)\S+|(https://[a-z0-9.-]*discord(?:app)?\.com/api/webhooks/)\S+`),
		[]string{"HTTPS://"},
	},
	{
		regexp.MustCompile(`([?&](?i:[a-z0-9_-]*(?:token|key|secret|sig|signature|password|credential)[a-z0-9_-]*)=)[^\s&"'#]+`),
		[]string{"?", "&"},
	},
}

// named finds a value that is given by the name of a credential.
var named = pattern{
	regexp.MustCompile(`(?i)(\b[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)s?["']?\s?(=|:)\s?["']?)([^\s"',;&{}]{6,})`),
	[]string{"PASSW", "SECRET", "TOKEN", "KEY", "CREDENTIAL"},
}

// replace gives what the pattern finds in a text to a function. The text in capital letters has what is to be
// found, or may have: what is masked goes.
func (p pattern) replace(text, capitals string, by func(found []string) string) string {
	if !slices.ContainsFunc(p.signs, func(sign string) bool { return strings.Contains(capitals, sign) }) {
		return text
	}
	return p.ReplaceAllStringFunc(text, func(found string) string { return by(p.FindStringSubmatch(found)) })
}

// inCapitals returns text in capital letters, those included that (?i) takes for another one: ſ is s, and K is k.
func inCapitals(text string) string { return strings.ToUpper(strings.ToLower(text)) }

// Mask returns text with *** for what looks like a credential. It is the last of several bounds: our own
// texts hold none to begin with, those of third parties may.
func Mask(text string) string {
	capitals := inCapitals(text)
	for _, p := range patterns {
		text = p.replace(text, capitals, func(found []string) string {
			kept := strings.Join(found[1:], "")
			if strings.HasSuffix(found[0], "@") {
				return kept + masked + "@"
			}
			return kept + masked
		})
	}
	return named.replace(text, capitals, func(found []string) string {
		if value := found[3]; found[2] == ":" && len(value) < 20 && !strings.ContainsFunc(value, unicode.IsDigit) {
			return found[0] // prose, such as "token: expired"
		}
		return found[1] + masked
	})
}

// maskValue masks a value of the metadata. [Token] is none of a credential.
func maskValue(key, value string) string {
	if key == Token || value == "" {
		return Mask(value)
	}
	if whole := named.FindStringSubmatch(key + "=" + value); whole != nil && whole[1] == key+"=" {
		return masked
	}
	return Mask(value)
}
