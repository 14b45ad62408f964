package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// OCIRepositoryKind is the kind's name.
const OCIRepositoryKind = "OCIRepository"

// Operations on the selected layer.
const (
	LayerExtract = "extract"
	LayerCopy    = "copy"
)

// OCIRepositorySpec defines the repository of an OCI artifact and which of its revisions is fetched.
type OCIRepositorySpec struct {
	// URL of the repository in a registry, as oci://host/path, without tag or digest.
	// +kubebuilder:validation:Pattern="^oci://.*$"
	// +optional
	URL string `json:"url,omitempty"`

	// Reference to resolve. Defaults to the tag latest.
	// +optional
	Reference *OCIRepositoryRef `json:"ref,omitempty"`

	// LayerSelector defines which layer the artifact is built from, and how. If unset, the first layer is extracted.
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

	// Provider whose authentication is used.
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default:=generic
	// +optional
	Provider string `json:"provider,omitempty"`

	// SecretRef references the Secret of type kubernetes.io/dockerconfigjson with the credentials of the registry.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Verify defines who must have signed the artifact. If unset, signatures are not verified.
	// +optional
	Verify *Verification `json:"verify,omitempty"`

	// ServiceAccountName is the ServiceAccount whose pull secrets or, with a cloud provider, whose identity is used.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef references the Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef references the Secret with the address, username and password of the proxy.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Interval at which the registry is checked for a new revision.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval meta.Duration `json:"interval"`

	// Timeout of one fetch.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +kubebuilder:default="60s"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Ignore holds rules in .gitignore syntax that replace the default exclusions.
	// +optional
	Ignore *string `json:"ignore,omitempty"`

	// Insecure connects to the registry over plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Suspend stops reconciling. The last artifact is still served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	meta.Gated `json:",inline"`
}

// OCIRepositoryRef defines which revision is fetched. Precedence: digest, semver, tag.
type OCIRepositoryRef struct {
	// Digest to pin, as sha256:<hex>.
	// +optional
	Digest string `json:"digest,omitempty"`

	// SemVer range of tags to follow. The highest matching version is used.
	// +optional
	SemVer string `json:"semver,omitempty"`

	// SemverFilter is a regular expression. Tags that do not match it are ignored.
	// +optional
	SemverFilter string `json:"semverFilter,omitempty"`

	// Tag to follow.
	// +optional
	Tag string `json:"tag,omitempty"`
}

// OCILayerSelector defines which layer the artifact is built from, and how.
type OCILayerSelector struct {
	// MediaType of the layer. The first layer with this type is used.
	// +optional
	MediaType string `json:"mediaType,omitempty"`

	// Operation on the layer. With extract, its files are extracted; with copy, it is copied unchanged.
	// Defaults to extract.
	// +kubebuilder:validation:Enum=extract;copy
	// +optional
	Operation string `json:"operation,omitempty"`
}

// OCIRepositoryStatus is what was observed of the repository.
type OCIRepositoryStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// URL of the latest artifact.
	// +optional
	URL string `json:"url,omitempty"`

	// Artifact of the last fetched revision.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// ObservedIgnore are the ignore rules that the artifact was built with.
	// +optional
	ObservedIgnore *string `json:"observedIgnore,omitempty"`

	// ObservedLayerSelector is the layer selector that the artifact was built with.
	// +optional
	ObservedLayerSelector *OCILayerSelector `json:"observedLayerSelector,omitempty"`

	// SourceVerificationFingerprint identifies the keys or identities that verified the revision of the artifact.
	// When they change, the revision is verified again.
	// +optional
	SourceVerificationFingerprint string `json:"sourceVerificationFingerprint,omitempty"`
}

// OCIRepository makes the content of an OCI artifact available, at the revision that its reference resolves to.
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || (has(self.spec.url) && has(self.spec.interval))",
// +> message="spec.url and spec.interval are required"
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ocirepo,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type OCIRepository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OCIRepositorySpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status OCIRepositoryStatus `json:"status,omitempty"`
}

// OCIRepositoryList is a list of repositories.
// +kubebuilder:object:root=true
type OCIRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OCIRepository `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (r *OCIRepository) CommonStatus() *meta.Status { return &r.Status.Status }

// GateRefs returns the gates that the object references.
func (r *OCIRepository) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *OCIRepository) Held() *meta.Held { return &r.Status.Held }

// GetArtifact returns the last artifact; nil if there is none.
func (r *OCIRepository) GetArtifact() *meta.Artifact { return r.Status.Artifact }

// SetArtifact sets the last artifact, and the URL of the newest artifact.
func (r *OCIRepository) SetArtifact(a *meta.Artifact) {
	r.Status.Artifact, r.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the repository is reconciled.
func (r *OCIRepository) Schedule() meta.Schedule {
	return schedule(r.Spec.Interval, r.Spec.Timeout, r.Spec.Suspend)
}
