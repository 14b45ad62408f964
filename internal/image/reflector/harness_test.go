package reflector_test

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// images adds the helpers that only the tests of this package need.
type images struct{ *system.Images }

// newImages starts the controllers in a namespace of their own, beside a registry.
func newImages(t *testing.T, configure ...func(*options.Options)) *images {
	t.Helper()
	return &images{system.NewImages(t, configure...)}
}
