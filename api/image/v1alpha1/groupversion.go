// Package v1alpha1 holds the image kinds that only Sluice has.
// +kubebuilder:object:generate=true
// +groupName=image.toolkit.fluxcd.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "image.toolkit.fluxcd.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ImageUpdateJob{}, &ImageUpdateJobList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
