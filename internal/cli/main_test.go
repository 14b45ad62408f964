package cli

import (
	"fmt"
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/helm/render"
)

func TestMain(m *testing.M) {
	render.RunChild()
	code := m.Run()
	if err := stopControllers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
