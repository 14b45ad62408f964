package helmrelease

import (
	"crypto/sha256"
	"encoding/hex"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
)

// Bounds of release names, which Helm stores in labels and templates use in names.
const (
	maxReleaseName   = 53
	shortNamePrefix  = 40
	shortNameHashHex = 12
)

// releaseName returns the name of the Helm release. A name that is too long is cut, and gets a hash of the whole.
func releaseName(obj *helmv2.HelmRelease) string {
	name := obj.Spec.ReleaseName
	if name == "" {
		name = obj.Name
		if obj.Spec.TargetNamespace != "" {
			name = obj.Spec.TargetNamespace + "-" + obj.Name
		}
	}
	if len(name) <= maxReleaseName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:shortNamePrefix] + "-" + hex.EncodeToString(sum[:])[:shortNameHashHex]
}
