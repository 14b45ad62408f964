package helmrelease_test

import (
	"fmt"
	"testing"

	"helm.sh/helm/v4/pkg/release/common"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// restarts is the number of times that the controllers are stopped in the middle of an upgrade.
const restarts = 8

// TestUpgradesThatAreStoppedAreCompleted stops the controllers at any point of upgrades. The next ones complete them,
// and no two stored releases are deployed.
func TestUpgradesThatAreStoppedAreCompleted(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.publish("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate("pre-upgrade")})
	h.release("app")
	h.ready("app", 1)
	for n := range restarts {
		color := fmt.Sprintf("color-%d", n)
		h.edit("app", values(map[string]any{"color": color}))
		for range n { // each time at a later point
			if err := h.Get(&helmv2.HelmRelease{}, "app"); err != nil {
				t.Fatal(err)
			}
			h.statuses("app")
		}
		h.Stop()
		h.Start()
		h.configMap("app-config", color)
		testenv.Eventually(t, "the release is deployed", func() error {
			deployed := 0
			for _, rel := range h.stored("app") {
				if rel.Info.Status == common.StatusDeployed {
					deployed++
				}
			}
			r := &helmv2.HelmRelease{}
			if err := h.Get(r, "app"); err != nil {
				return err
			}
			if newest := h.stored("app")[0]; deployed != 1 || len(r.Status.History) == 0 ||
				r.Status.History[0].Version != newest.Version || newest.Info.Status != common.StatusDeployed {
				return fmt.Errorf("stored: %s; status: %+v", h.statuses("app"), r.Status.History)
			}
			return nil
		})
	}
}
