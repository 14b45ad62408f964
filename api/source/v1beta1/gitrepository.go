package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// GitRepositorySpec is the legacy form of the current version's.
type GitRepositorySpec struct {
	// URL of the repository, over HTTP(S) or SSH.
	// +kubebuilder:validation:Pattern="^(http|https|ssh)://.*$"
	// +required
	URL string `json:"url"`

	// SecretRef references the Secret with the credentials.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Interval at which the repository is checked for a new revision.
	// +required
	Interval meta.Duration `json:"interval"`

	// Timeout of one fetch.
	// +kubebuilder:default="60s"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Reference to resolve. Defaults to the branch master.
	// +optional
	Reference *GitRepositoryRef `json:"ref,omitempty"`

	// Verification of the signature of the commit.
	// +optional
	Verification *GitRepositoryVerification `json:"verify,omitempty"`

	// Ignore holds rules in .gitignore syntax that replace the default exclusions.
	// +optional
	Ignore *string `json:"ignore,omitempty"`

	// Suspend stops reconciling.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// GitImplementation is accepted and ignored.
	// +kubebuilder:validation:Enum=go-git;libgit2
	// +kubebuilder:default=go-git
	// +optional
	GitImplementation string `json:"gitImplementation,omitempty"`

	// RecurseSubmodules includes the content of submodules.
	// +optional
	RecurseSubmodules bool `json:"recurseSubmodules,omitempty"`

	// Include copies the content of other repositories into the artifact.
	// +optional
	Include []GitRepositoryInclude `json:"include,omitempty"`

	// AccessFrom defines which namespaces may reference the repository.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	meta.Gated `json:",inline"`
}

// GitRepositoryRef defines which revision is fetched.
type GitRepositoryRef struct {
	// +optional
	Branch string `json:"branch,omitempty"`
	// +optional
	Tag string `json:"tag,omitempty"`
	// +optional
	SemVer string `json:"semver,omitempty"`
	// +optional
	Commit string `json:"commit,omitempty"`
}

// GitRepositoryVerification defines which git objects must be signed, and by which keys.
type GitRepositoryVerification struct {
	// Mode defines which git objects are verified.
	// +kubebuilder:validation:Enum=head
	// +required
	Mode string `json:"mode"`

	// SecretRef references the Secret with the trusted public keys.
	// +optional
	SecretRef meta.LocalObjectReference `json:"secretRef,omitempty"`
}

// GitRepositoryInclude copies the content of another repository into the artifact.
type GitRepositoryInclude struct {
	// +required
	GitRepositoryRef meta.LocalObjectReference `json:"repository"`
	// +optional
	FromPath string `json:"fromPath,omitempty"`
	// +optional
	ToPath string `json:"toPath,omitempty"`
}

// Artifact is the packaged content of a source at a revision.
type Artifact struct {
	// Path of the file relative to the root of the artifact store.
	// +required
	Path string `json:"path"`

	// URL at which the artifact is served.
	// +required
	URL string `json:"url"`

	// Revision in the origin source system.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Checksum is the SHA256 of the file in hex.
	// +optional
	Checksum string `json:"checksum,omitempty"`

	// LastUpdateTime is when the artifact was last written.
	// +optional
	LastUpdateTime meta.Time `json:"lastUpdateTime,omitempty"`
}

// GitRepositoryStatus is what was observed of the repository.
type GitRepositoryStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// URL of the latest artifact.
	// +optional
	URL string `json:"url,omitempty"`

	// Artifact of the last fetched revision.
	// +optional
	Artifact *Artifact `json:"artifact,omitempty"`

	// IncludedArtifacts are the artifacts copied into this one.
	// +optional
	IncludedArtifacts []*Artifact `json:"includedArtifacts,omitempty"`
}

// GitRepository is the legacy form of the current version's kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gitrepo,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
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
