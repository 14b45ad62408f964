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

// OCIRepositorySpec says where the OCI artifact is and which revision of it counts.
type OCIRepositorySpec struct {
	// URL of the repository in a registry, as oci://host/path; without tag or digest.
	// +kubebuilder:validation:Pattern="^oci://.*$"
	// +required
	URL string `json:"url"`

	// Reference to resolve; the tag latest when unset.
	// +optional
	Reference *OCIRepositoryRef `json:"ref,omitempty"`

	// LayerSelector says which layer makes the artifact, and how; the first one, extracted, when unset.
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

	// Provider whose login is used.
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default:=generic
	// +optional
	Provider string `json:"provider,omitempty"`

	// SecretRef names the Secret of type kubernetes.io/dockerconfigjson with the registry's login.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Verify says by whom the artifact must be signed; nothing is verified when unset.
	// +optional
	Verify *Verification `json:"verify,omitempty"`

	// ServiceAccountName names the account whose pull secrets, or with a cloud provider whose identity, is used.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef names the Secret with ca.crt, and tls.crt and tls.key for mutual TLS.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef names the Secret with the proxy's address, username and password.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Interval at which the registry is asked for a new revision.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
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

	// Insecure speaks to the registry over HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Suspend stops reconciling; the last artifact keeps being served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	meta.Gated `json:",inline"`
}

// OCIRepositoryRef says which revision counts. Precedence: digest, semver, tag.
type OCIRepositoryRef struct {
	// Digest to pin, as sha256:<hex>.
	// +optional
	Digest string `json:"digest,omitempty"`

	// SemVer range of tags to follow, highest first.
	// +optional
	SemVer string `json:"semver,omitempty"`

	// SemverFilter is a regular expression; tags that it does not match are left out of the range.
	// +optional
	SemverFilter string `json:"semverFilter,omitempty"`

	// Tag to follow.
	// +optional
	Tag string `json:"tag,omitempty"`
}

// OCILayerSelector says which layer makes the artifact, and how.
type OCILayerSelector struct {
	// MediaType of the layer; the first layer of this type is taken.
	// +optional
	MediaType string `json:"mediaType,omitempty"`

	// Operation on the layer: extract its files, or copy it as it is; extract when unset.
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

	// Artifact of the last revision that was fetched.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// ObservedIgnore is the ignore rules of the artifact.
	// +optional
	ObservedIgnore *string `json:"observedIgnore,omitempty"`

	// ObservedLayerSelector is the layer selector of the artifact.
	// +optional
	ObservedLayerSelector *OCILayerSelector `json:"observedLayerSelector,omitempty"`
}

// OCIRepository keeps an artifact of an OCI artifact at the revision that its reference resolves to.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ocirepo
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

// GateRefs returns the gates that the object names.
func (r *OCIRepository) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *OCIRepository) Held() *meta.Held { return &r.Status.Held }

// GetArtifact returns the last artifact; nil when there is none.
func (r *OCIRepository) GetArtifact() *meta.Artifact { return r.Status.Artifact }

// SetArtifact sets the last artifact, and where the newest is served.
func (r *OCIRepository) SetArtifact(a *meta.Artifact) {
	r.Status.Artifact, r.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the repository is reconciled.
func (r *OCIRepository) Schedule() meta.Schedule {
	return schedule(r.Spec.Interval, r.Spec.Timeout, r.Spec.Suspend)
}
