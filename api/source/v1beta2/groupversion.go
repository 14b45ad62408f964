// Package v1beta2 holds a legacy version of the source kinds, served for manifests that use it.
// +kubebuilder:object:generate=true
// +groupName=source.toolkit.fluxcd.io
package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "source.toolkit.fluxcd.io", Version: "v1beta2"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Bucket{}, &BucketList{},
		&GitRepository{}, &GitRepositoryList{},
		&HelmChart{}, &HelmChartList{},
		&HelmRepository{}, &HelmRepositoryList{},
		&OCIRepository{}, &OCIRepositoryList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
