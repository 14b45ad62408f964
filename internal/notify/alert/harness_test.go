package alert_test

import (
	"os"
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

// sharedHarness creates a namespace for the controllers that the tests share.
func sharedHarness(t *testing.T) *harness {
	t.Helper()
	return &harness{system.Shared(t)}
}

func TestMain(m *testing.M) { os.Exit(system.Main(m)) }
