package kustomization_test

import (
	"os"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func init() { kustomizev1.MinTimeout = 0 } // the tests wait for timeouts

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

// sharedHarness creates a namespace for the controllers that the tests share.
func sharedHarness(t *testing.T) *harness {
	t.Helper()
	return &harness{system.Shared(t)}
}

func TestMain(m *testing.M) { os.Exit(system.Main(m)) }
