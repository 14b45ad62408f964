package event

import (
	"regexp"
	"strings"
	"unicode"
)

const masked = "***"

// patterns find what looks like a credential. The first group, if there is one, is kept, as it says what was masked.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|$)`),
	regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@"'<>?#]+@`), // user and password of a URL
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), // a JSON Web Token
	regexp.MustCompile(`\b(?:gh[oprsu]_|github_pat_|glpat-|gldt-|glrt-|dckr_pat_|xox[a-z]-|xapp-|hvs\.|sk-|npm_|pypi-|AIza|ya29\.)[A-Za-z0-9_-]{16,}`),
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\bAGE-SECRET-KEY-[A-Z0-9-]+`),
	regexp.MustCompile(`(https://hooks\.slack\.com/)\S+|(https://[a-z0-9.-]*discord(?:app)?\.com/api/webhooks/)\S+`),
	regexp.MustCompile(`([?&](?i:[a-z0-9_-]*(?:token|key|secret|sig|signature|password|credential)[a-z0-9_-]*)=)[^\s&"'#]+`),
}

// named finds a value that is given by the name of a credential.
var named = regexp.MustCompile(`(?i)(\b[a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)s?["']?\s?(=|:)\s?["']?)([^\s"',;&{}]{6,})`)

// Mask returns text with *** for what looks like a credential. It is the last of several bounds: our own texts hold none to begin with, those of
// third parties may.
func Mask(text string) string {
	for _, p := range patterns {
		text = p.ReplaceAllStringFunc(text, func(found string) string {
			kept := strings.Join(p.FindStringSubmatch(found)[1:], "")
			if strings.HasSuffix(found, "@") {
				return kept + masked + "@"
			}
			return kept + masked
		})
	}
	return named.ReplaceAllStringFunc(text, func(found string) string {
		parts := named.FindStringSubmatch(found)
		if value := parts[3]; parts[2] == ":" && len(value) < 20 && !strings.ContainsFunc(value, unicode.IsDigit) {
			return found // prose, such as "token: expired"
		}
		return parts[1] + masked
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
