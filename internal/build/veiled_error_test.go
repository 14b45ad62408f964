package build

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestErrorsOfSecretVariablesAreHidden has a build that fails with the value of a Secret, and not with a placeholder:
// the error names the variable, and does not quote the value.
func TestErrorsOfSecretVariablesAreHidden(t *testing.T) {
	tree := artifact.FromMap(map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: ${PASSWORD}\n"})
	f := newFilesystem(t.Context(), tree)
	err := f.withoutSecrets(Request{Tree: tree, Substitution: &Substitution{
		Variables: map[string]string{"PASSWORD": "hunter2"}, Secret: map[string]bool{"PASSWORD": true}}})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "PASSWORD") ||
		!strings.Contains(err.Error(), "Check that their values fit where they are used") {
		t.Errorf("the error is %v", err)
	}
}
