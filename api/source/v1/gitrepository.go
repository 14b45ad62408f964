package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// GitRepositoryKind is the kind's name.
const GitRepositoryKind = "GitRepository"

// GitRepositorySpec defines the repository and which of its revisions is fetched.
// +kubebuilder:validation:XValidation:message="serviceAccountName can only be set when provider is 'azure' or 'aws'",
// +> rule="!has(self.serviceAccountName) || (has(self.provider) && (self.provider == 'azure' || self.provider ==
// +>  'aws'))"
type GitRepositorySpec struct {
	// URL of the repository, over HTTP(S) or SSH.
	// +kubebuilder:validation:Pattern="^(http|https|ssh)://.*$"
	// +required
	URL string `json:"url"`

	// SecretRef references the Secret with the credentials: username and password, bearerToken, or identity
	// and known_hosts. It may also hold ca.crt for a private certificate authority.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Provider whose workload identity is used. Defaults to generic.
	// +kubebuilder:validation:Enum=generic;aws;azure;github
	// +optional
	Provider string `json:"provider,omitempty"`

	// ServiceAccountName is the ServiceAccount whose identity is used with the azure and aws providers.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Interval at which the repository is checked for a new revision.
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

	// Reference to resolve. Defaults to the branch master.
	// +optional
	Reference *GitRepositoryRef `json:"ref,omitempty"`

	// Verification of the signatures of the commit or tag.
	// +optional
	Verification *GitRepositoryVerification `json:"verify,omitempty"`

	// ProxySecretRef references the Secret with the address, username and password of the proxy.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Ignore holds rules in .gitignore syntax that replace the default exclusions.
	// +optional
	Ignore *string `json:"ignore,omitempty"`

	// Suspend stops reconciling. The last artifact is still served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// RecurseSubmodules includes the content of submodules.
	// +optional
	RecurseSubmodules bool `json:"recurseSubmodules,omitempty"`

	// Include copies the content of other repositories into the artifact.
	// +optional
	Include []GitRepositoryInclude `json:"include,omitempty"`

	// SparseCheckout lists the directories that the artifact contains. If unset, it contains all directories.
	// +optional
	SparseCheckout []string `json:"sparseCheckout,omitempty"`

	// GitImplementation is accepted for manifests of v1beta1 and v1beta2, and ignored.
	// Deprecated.
	// +kubebuilder:validation:Enum=go-git;libgit2
	// +optional
	GitImplementation string `json:"gitImplementation,omitempty"`

	// AccessFrom is accepted for manifests of v1beta1 and v1beta2.
	// Deprecated.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	meta.Gated `json:",inline"`
}

// GitRepositoryRef defines which revision is fetched. Precedence: commit, name, tag, semver, branch.
type GitRepositoryRef struct {
	// Branch to follow.
	// +optional
	Branch string `json:"branch,omitempty"`

	// Tag to follow.
	// +optional
	Tag string `json:"tag,omitempty"`

	// SemVer range of tags to follow. The highest matching version is used.
	// +optional
	SemVer string `json:"semver,omitempty"`

	// Name of the full reference to follow, such as refs/pull/420/head.
	// +optional
	Name string `json:"name,omitempty"`

	// Commit SHA to pin.
	// +optional
	Commit string `json:"commit,omitempty"`
}

// GitRepositoryVerification defines which git objects must be signed, and by which keys.
type GitRepositoryVerification struct {
	// Mode defines which git objects are verified.
	// +kubebuilder:validation:Enum=head;HEAD;Tag;TagAndHEAD
	// +kubebuilder:default=HEAD
	// +optional
	Mode string `json:"mode,omitempty"`

	// SecretRef references the Secret with the trusted public keys.
	// +required
	SecretRef meta.LocalObjectReference `json:"secretRef"`
}

// GitRepositoryInclude copies the content of another repository into the artifact.
type GitRepositoryInclude struct {
	// GitRepositoryRef references the repository, in the same namespace.
	// +required
	GitRepositoryRef meta.LocalObjectReference `json:"repository"`

	// FromPath is the path to copy. Defaults to the root.
	// +optional
	FromPath string `json:"fromPath,omitempty"`

	// ToPath is the destination path. Defaults to the name of the repository.
	// +optional
	ToPath string `json:"toPath,omitempty"`
}

// GitRepositoryStatus is what was observed of the repository.
type GitRepositoryStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// Artifact of the last fetched revision.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// IncludedArtifacts are the artifacts copied into this one.
	// +optional
	IncludedArtifacts []*meta.Artifact `json:"includedArtifacts,omitempty"`

	// ObservedIgnore are the ignore rules that the artifact was built with.
	// +optional
	ObservedIgnore *string `json:"observedIgnore,omitempty"`

	// ObservedRecurseSubmodules reports whether the artifact contains submodules.
	// +optional
	ObservedRecurseSubmodules bool `json:"observedRecurseSubmodules,omitempty"`

	// ObservedInclude lists the inclusions that the artifact was built with.
	// +optional
	ObservedInclude []GitRepositoryInclude `json:"observedInclude,omitempty"`

	// ObservedSparseCheckout lists the directories that the artifact was built with.
	// +optional
	ObservedSparseCheckout []string `json:"observedSparseCheckout,omitempty"`

	// SourceVerificationMode is the mode in which the revision of the artifact was verified.
	// +optional
	SourceVerificationMode *string `json:"sourceVerificationMode,omitempty"`

	// SourceVerificationFingerprint identifies the keys or identities that verified the revision of the artifact.
	// When they change, the revision is verified again.
	// +optional
	SourceVerificationFingerprint string `json:"sourceVerificationFingerprint,omitempty"`
}

// GitRepository makes the content of a git repository available as an artifact, at the revision that its
// reference resolves to.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gitrepo,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type GitRepository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GitRepositorySpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status GitRepositoryStatus `json:"status,omitempty"`
}

// GitRepositoryList is a list of repositories.
// +kubebuilder:object:root=true
type GitRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GitRepository `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (r *GitRepository) CommonStatus() *meta.Status { return &r.Status.Status }

// GateRefs returns the gates that the object references.
func (r *GitRepository) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *GitRepository) Held() *meta.Held { return &r.Status.Held }

// GetArtifact returns the last artifact; nil if there is none.
func (r *GitRepository) GetArtifact() *meta.Artifact { return r.Status.Artifact }

// SetArtifact sets the last artifact.
func (r *GitRepository) SetArtifact(a *meta.Artifact) { r.Status.Artifact = a }

// Schedule returns when and for how long the repository is reconciled.
func (r *GitRepository) Schedule() meta.Schedule {
	return schedule(r.Spec.Interval, r.Spec.Timeout, r.Spec.Suspend)
}
