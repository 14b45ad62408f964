// Package v1 holds the current version of the notification kinds.
// +kubebuilder:object:generate=true
// +groupName=notification.toolkit.fluxcd.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package.
var GroupVersion = schema.GroupVersion{Group: "notification.toolkit.fluxcd.io", Version: "v1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Receiver{}, &ReceiverList{}, &Alert{}, &AlertList{}, &Provider{},
		&ProviderList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
