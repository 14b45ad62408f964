package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// HelmRepositorySpec is the legacy form of the current version's.
type HelmRepositorySpec struct {
	// URL of the repository.
	// +required
	URL string `json:"url"`

	// SecretRef references the Secret with the credentials.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// PassCredentials also sends the credentials to the hosts of chart URLs.
	// +optional
	PassCredentials bool `json:"passCredentials,omitempty"`

	// Interval at which the index is checked.
	// +required
	Interval meta.Duration `json:"interval"`

	// Timeout of one fetch.
	// +kubebuilder:default="60s"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Suspend stops reconciling.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom defines which namespaces may reference the repository.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	// Type of the repository. Defaults to default.
	// +kubebuilder:validation:Enum=default;oci
	// +optional
	Type string `json:"type,omitempty"`

	// Provider whose authentication is used.
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default:=generic
	// +optional
	Provider string `json:"provider,omitempty"`

	meta.Gated `json:",inline"`
}

// HelmRepositoryStatus is what was observed of the repository.
type HelmRepositoryStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// URL of the latest artifact.
	// +optional
	URL string `json:"url,omitempty"`

	// Artifact of the last fetched index.
	// +optional
	Artifact *Artifact `json:"artifact,omitempty"`
}

// HelmRepository is the legacy form of the current version's kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=helmrepo,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type HelmRepository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HelmRepositorySpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status HelmRepositoryStatus `json:"status,omitempty"`
}

// HelmRepositoryList is a list of repositories.
// +kubebuilder:object:root=true
type HelmRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HelmRepository `json:"items"`
}
