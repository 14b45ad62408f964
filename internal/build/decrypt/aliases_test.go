package decrypt

import (
	"strings"
	"testing"
)

// TestAliasesInEntries has an entry of less than 1 MiB whose aliases stand for gigabytes of text.
func TestAliasesInEntries(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 400_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	for _, entry := range []string{awsEntry, azureEntry} {
		if _, err := FromSecret(map[string][]byte{entry: []byte(text)}, nil); err == nil {
			t.Errorf("%s is accepted", entry)
		}
	}
}
