package automate_test

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// harness adds the helpers that only the tests of this package need.
type harness struct{ *system.System }

// newHarness starts the controllers in a namespace of their own.
func newHarness(t *testing.T, configure ...func(*options.Options)) *harness {
	t.Helper()
	return &harness{system.New(t, configure...)}
}

// prepareHarness creates everything but the controllers.
func prepareHarness(t *testing.T, configure ...func(*options.Options)) *harness {
	t.Helper()
	return &harness{system.Prepare(t, configure...)}
}
