// Package v1alpha1 holds kinds that provide inputs for ResourceSets.
// +kubebuilder:object:generate=true
// +groupName=inputs.toolkit.fluxcd.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "inputs.toolkit.fluxcd.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterInputProvider{}, &ClusterInputProviderList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
