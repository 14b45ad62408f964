package preview

import (
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/helm/render"
)

// TestMain lets the tests render charts and ResourceSets: without it, each child would run all tests again.
func TestMain(m *testing.M) {
	render.RunChild()
	os.Exit(m.Run())
}
