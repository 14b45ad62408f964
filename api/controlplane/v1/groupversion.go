// Package v1 holds the kinds that render objects for sets of inputs, as Flux Operator defines them.
// +kubebuilder:object:generate=true
// +groupName=fluxcd.controlplane.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "fluxcd.controlplane.io", Version: "v1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ResourceSet{}, &ResourceSetList{}, &ResourceSetInputProvider{},
		&ResourceSetInputProviderList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
