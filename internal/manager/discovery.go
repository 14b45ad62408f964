package manager

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-gitops/sluice/internal/image/discover"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
)

// runDiscovery keeps the image objects that workloads call for. A process that would not see them, as its
// --watch-label-selector leaves them to another, has none.
func (p *process) runDiscovery() error {
	seen, err := labels.Parse(p.WatchLabelSelector)
	if err != nil || !seen.Matches(labels.Set{plan.Discovered: "true"}) {
		return err
	}
	only := ""
	if !p.WatchAllNamespaces {
		only = p.RuntimeNamespace
	}
	return discover.Register(p.mgr, only)
}
