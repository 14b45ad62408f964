package cli

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestGatesPage creates the gates of docs/gates-and-freezes.md and runs its commands, in their order.
func TestGatesPage(t *testing.T) {
	c, namespace := withDefinitions(t)
	for _, block := range testenv.Blocks(t, "gates-and-freezes.md", "yaml") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(block), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(namespace)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	commands := testenv.Commands(t, "gates-and-freezes.md")
	for _, args := range commands {
		if !slices.Contains(args, "-A") {
			args = append(args, "-n", namespace)
		}
		at(t, args...).wants(t, exitOK)
	}
	if len(commands) < 7 {
		t.Errorf("the page has %d commands", len(commands))
	}
}
