// Package resourceversion compares resource versions of Kubernetes objects, says which work needs current ones, and
// lists objects again after a version that the API server cannot read.
package resourceversion

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer reports whether resource version a is newer than b, false if either is not a positive number. Both must be of
// the same resource. Resource versions are ordered numbers for all built-in and custom resources (KEP-5504).
func Newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
