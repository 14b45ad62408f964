package githost

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
)

// singleLine joins the lines of a text.
func singleLine(s string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
}

// equalText compares texts without line endings and trailing white space, which hosts change.
func equalText(a, b string) bool {
	plain := func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }
	return plain(a) == plain(b)
}

// missingFrom returns the elements of wanted that are not in existing, ignoring case as hosts do for labels.
func missingFrom(wanted, existing []string) []string {
	var missing []string
	for _, w := range wanted {
		same := func(h string) bool { return strings.EqualFold(h, w) }
		if !slices.ContainsFunc(existing, same) && !slices.ContainsFunc(missing, same) {
			missing = append(missing, w)
		}
	}
	return missing
}

// digest returns a key of 40 hexadecimal digits for a name. SHA-1 is used for its length, the maximum for Bitbucket;
// it is not used for security.
func digest(parts ...string) string {
	sum := sha1.Sum([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
