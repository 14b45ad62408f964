package manager

import (
	"k8s.io/apimachinery/pkg/labels"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/image/discover"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
)

// runDiscovery keeps the image objects that workloads call for. A process that would not see them, as its --watch-label-selector leaves them
// to another, has none.
func runDiscovery(mgr ctrlmanager.Manager, o Options) error {
	seen, err := labels.Parse(o.WatchLabelSelector)
	if err != nil || !seen.Matches(labels.Set{plan.Discovered: "true"}) {
		return err
	}
	only := ""
	if !o.WatchAllNamespaces {
		only = o.RuntimeNamespace
	}
	return discover.Register(mgr, only)
}
