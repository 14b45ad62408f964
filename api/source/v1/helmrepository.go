package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// HelmRepositoryKind is the kind's name.
const HelmRepositoryKind = "HelmRepository"

// Types of Helm repositories.
const (
	HelmRepositoryTypeDefault = "default"
	HelmRepositoryTypeOCI     = "oci"
)

// HelmRepositorySpec defines a repository of Helm charts.
type HelmRepositorySpec struct {
	// URL of the directory with index.yaml over HTTP(S), or of the parent of the charts in an OCI registry.
	// +kubebuilder:validation:Pattern="^(http|https|oci)://.*$"
	// +required
	URL string `json:"url"`

	// SecretRef references the Secret with username and password or, for an OCI registry, a Secret of type
	// kubernetes.io/dockerconfigjson.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef references the Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// PassCredentials also sends the credentials to the hosts of chart URLs if they differ from the host of the index.
	// +optional
	PassCredentials bool `json:"passCredentials,omitempty"`

	// Interval at which the index is checked. Defaults to 1m. Not used for OCI repositories, which have no index.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval meta.Duration `json:"interval,omitempty"`

	// Insecure connects to the OCI registry over plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Timeout of one fetch. Defaults to 60s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Suspend stops reconciling. The last artifact is still served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom is accepted for manifests of v1beta1 and v1beta2.
	// Deprecated.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	// Type of the repository. Defaults to default.
	// +kubebuilder:validation:Enum=default;oci
	// +optional
	Type string `json:"type,omitempty"`

	// Provider whose authentication is used with an OCI registry.
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
	Artifact *meta.Artifact `json:"artifact,omitempty"`
}

// HelmRepository makes the index of a Helm repository available as an artifact, or references an OCI registry
// that contains charts.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

// CommonStatus returns the part of the status that the kernel writes.
func (r *HelmRepository) CommonStatus() *meta.Status { return &r.Status.Status }

// GateRefs returns the gates that the object references.
func (r *HelmRepository) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *HelmRepository) Held() *meta.Held { return &r.Status.Held }

// GetArtifact returns the last artifact; nil if there is none.
func (r *HelmRepository) GetArtifact() *meta.Artifact { return r.Status.Artifact }

// SetArtifact sets the last artifact, and the URL of the newest artifact.
func (r *HelmRepository) SetArtifact(a *meta.Artifact) {
	r.Status.Artifact, r.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the repository is reconciled. A repository in an OCI registry has no
// interval, because only its HelmCharts fetch from it.
func (r *HelmRepository) Schedule() meta.Schedule {
	s := schedule(r.Spec.Interval, r.Spec.Timeout, r.Spec.Suspend)
	switch {
	case r.Spec.Type == HelmRepositoryTypeOCI:
		s.Interval = 0
	case s.Interval == 0:
		s.Interval = time.Minute
	}
	return s
}
