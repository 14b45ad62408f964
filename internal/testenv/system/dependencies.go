package system

import (
	"github.com/sluice-gitops/sluice/internal/options"
)

// AllNamespaces lets the controllers of a test see all namespaces, but only its objects there.
func AllNamespaces(o *options.Options) {
	o.WatchAllNamespaces = true
	o.WatchLabelSelector = "test=" + o.RuntimeNamespace
}
