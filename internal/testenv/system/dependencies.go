package system

import (
	"github.com/sluice-gitops/sluice/internal/manager"
)

// AllNamespaces lets the controllers of a test see all namespaces, but only its objects there.
func AllNamespaces(o *manager.Options) {
	o.WatchAllNamespaces = true
	o.WatchLabelSelector = "test=" + o.RuntimeNamespace
}
