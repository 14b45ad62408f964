package alert

import (
	"strings"
	"testing"
)

// TestAliasesInHeaders has headers of less than 1 MiB whose aliases stand for gigabytes of text.
func TestAliasesInHeaders(t *testing.T) {
	text := "a: &a " + strings.Repeat("x", 400_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"
	if _, err := headers([]byte(text)); err == nil {
		t.Error("the headers are accepted")
	}
}
