package review

import (
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/helm/render"
)

func TestMain(m *testing.M) {
	render.RunChild() // previews render ResourceSets in this binary
	os.Exit(m.Run())
}
