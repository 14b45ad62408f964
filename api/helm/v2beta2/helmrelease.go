package v2beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
)

// HelmRelease releases a Helm chart, and keeps the release as declared.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hr,categories=all;fluxcd;fluxcd-appliers
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type HelmRelease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec helmv2.HelmReleaseSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status helmv2.HelmReleaseStatus `json:"status,omitempty"`
}

// HelmReleaseList is a list of HelmReleases.
// +kubebuilder:object:root=true
type HelmReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HelmRelease `json:"items"`
}
