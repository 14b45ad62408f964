package kube

import (
	"strings"
	"testing"
)

// TestAliasesInManifests has a manifest of less than 1 MiB whose aliases stand for gigabytes of text.
func TestAliasesInManifests(t *testing.T) {
	text := "apiVersion: v1\nkind: ConfigMap\na: &a " + strings.Repeat("x", 400_000) + "\nb: [" +
		strings.Repeat("*a,", 100_000) + "]\n"
	if _, err := Decode(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "of text") {
		t.Errorf("the error is %v", err)
	}
}
