// Package v1beta2 holds a legacy version of the image kinds, served for manifests that use it.
// +kubebuilder:object:generate=true
// +groupName=image.toolkit.fluxcd.io
package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "image.toolkit.fluxcd.io", Version: "v1beta2"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ImageRepository{}, &ImageRepositoryList{},
		&ImagePolicy{}, &ImagePolicyList{},
		&ImageUpdateAutomation{}, &ImageUpdateAutomationList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
