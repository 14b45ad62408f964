package githost

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
)

// line makes one line of a text.
func line(s string) string { return strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ") }

// sameText compares what people may read: hosts change the ends of lines, and drop the last.
func sameText(a, b string) bool {
	plain := func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }
	return plain(a) == plain(b)
}

// without returns what is in wanted and not in had; hosts do not tell labels apart by case.
func without(wanted, had []string) []string {
	var missing []string
	for _, w := range wanted {
		same := func(h string) bool { return strings.EqualFold(h, w) }
		if !slices.ContainsFunc(had, same) && !slices.ContainsFunc(missing, same) {
			missing = append(missing, w)
		}
	}
	return missing
}

// digest is 40 hexadecimal digits that stand for a name. SHA-1 is for its length, which is all that Bitbucket
// takes: nothing is trusted for it.
func digest(parts ...string) string {
	sum := sha1.Sum([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
