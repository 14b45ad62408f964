package provider

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestEveryTypeIsDocumented checks that docs/provider.md has an example of each type, and docs/notifications.md a link
// to its section.
func TestEveryTypeIsDocumented(t *testing.T) {
	var examples []string
	for _, block := range testenv.Blocks(t, "provider.md", "yaml") {
		var o struct {
			Kind string `json:"kind"`
			Spec struct {
				Type string `json:"type"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(block), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "Provider" {
			examples = append(examples, o.Spec.Type)
		}
	}
	guide := testenv.Page(t, "notifications.md")
	for name := range types {
		if !slices.Contains(examples, name) {
			t.Errorf("docs/provider.md has no example of type %s", name)
		}
		if !strings.Contains(guide, "(provider.md#"+strings.ReplaceAll(name, ".", "")+")") {
			t.Errorf("docs/notifications.md has no link to type %s", name)
		}
	}
}
