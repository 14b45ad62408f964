// Package v1 holds the current version of the source kinds.
// +kubebuilder:object:generate=true
// +groupName=source.toolkit.fluxcd.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "source.toolkit.fluxcd.io", Version: "v1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Bucket{}, &BucketList{},
		&ExternalArtifact{}, &ExternalArtifactList{},
		&GitRepository{}, &GitRepositoryList{},
		&HelmChart{}, &HelmChartList{},
		&HelmRepository{}, &HelmRepositoryList{},
		&OCIRepository{}, &OCIRepositoryList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
