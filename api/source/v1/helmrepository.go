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

// HelmRepositorySpec says where charts are.
type HelmRepositorySpec struct {
	// URL of the folder of index.yaml over HTTP(S), or of the charts' folder in an OCI registry.
	// +kubebuilder:validation:Pattern="^(http|https|oci)://.*$"
	// +required
	URL string `json:"url"`

	// SecretRef names the Secret with username and password, or for an OCI registry of type
	// kubernetes.io/dockerconfigjson.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef names the Secret with ca.crt, and tls.crt and tls.key for mutual TLS.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// PassCredentials sends the credentials to the hosts of chart URLs too, when they are other than that of the index.
	// +optional
	PassCredentials bool `json:"passCredentials,omitempty"`

	// Interval at which the index is checked; a minute when unset. An OCI repository has no index, and needs none.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval meta.Duration `json:"interval,omitempty"`

	// Insecure speaks to the OCI registry over HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Timeout of one fetch; 60 seconds when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Suspend stops reconciling; the last artifact keeps being served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom is kept for manifests of v1beta1 and v1beta2.
	// Deprecated.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	// Type of the repository; default when unset.
	// +kubebuilder:validation:Enum=default;oci
	// +optional
	Type string `json:"type,omitempty"`

	// Provider whose login is used with an OCI registry.
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

	// Artifact of the last index that was fetched.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`
}

// HelmRepository keeps an artifact of the index of a Helm repository, or names an OCI registry that holds charts.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=helmrepo
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

// GateRefs returns the gates that the object names.
func (r *HelmRepository) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *HelmRepository) Held() *meta.Held { return &r.Status.Held }

// GetArtifact returns the last artifact; nil when there is none.
func (r *HelmRepository) GetArtifact() *meta.Artifact { return r.Status.Artifact }

// SetArtifact sets the last artifact, and where the newest is served.
func (r *HelmRepository) SetArtifact(a *meta.Artifact) {
	r.Status.Artifact, r.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the repository is reconciled. One in an OCI registry has no
// interval: nothing is fetched of it but by its charts.
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
