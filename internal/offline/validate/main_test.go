package validate

import (
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/helm/render"
)

func TestMain(m *testing.M) {
	render.RunChild()
	os.Exit(m.Run())
}
