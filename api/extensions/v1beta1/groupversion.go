// Package v1beta1 holds the kinds that generate sources from other sources.
// +kubebuilder:object:generate=true
// +groupName=source.extensions.fluxcd.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "source.extensions.fluxcd.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ArtifactGenerator{}, &ArtifactGeneratorList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
