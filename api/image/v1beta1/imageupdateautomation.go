package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1beta1 "github.com/sluice-gitops/sluice/api/source/v1beta1"
)

// ImageUpdateAutomationSpec is the legacy form of the current version's.
type ImageUpdateAutomationSpec struct {
	// SourceRef references the GitRepository to check out and push to.
	// +required
	SourceRef imagev1.SourceReference `json:"sourceRef"`

	// GitSpec defines what is checked out, committed and pushed.
	// +optional
	GitSpec *GitSpec `json:"git,omitempty"`

	// Interval at which the repository is compared with the policies.
	// +required
	Interval meta.Duration `json:"interval"`

	// Update defines which files are updated, and how.
	// +kubebuilder:default={"strategy":"Setters"}
	// +optional
	Update *UpdateStrategy `json:"update,omitempty"`

	// Suspend stops updating.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	meta.Gated `json:",inline"`
}

// GitSpec defines what is checked out, committed and pushed.
type GitSpec struct {
	// +optional
	Checkout *GitCheckoutSpec `json:"checkout,omitempty"`
	// +required
	Commit CommitSpec `json:"commit"`
	// +optional
	Push *PushSpec `json:"push,omitempty"`
}

// GitCheckoutSpec defines what an update starts from.
type GitCheckoutSpec struct {
	// +required
	Reference sourcev1beta1.GitRepositoryRef `json:"ref"`
}

// CommitSpec defines the author, message and signature of a commit.
type CommitSpec struct {
	// +required
	Author imagev1.CommitUser `json:"author"`
	// +optional
	SigningKey *SigningKey `json:"signingKey,omitempty"`
	// +optional
	MessageTemplate string `json:"messageTemplate,omitempty"`
}

// SigningKey references the OpenPGP key that commits are signed with.
type SigningKey struct {
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
}

// PushSpec defines where a commit is pushed.
type PushSpec struct {
	// +required
	Branch string `json:"branch"`
}

// UpdateStrategy defines which files are updated, and how.
type UpdateStrategy struct {
	// +kubebuilder:validation:Enum=Setters
	// +kubebuilder:default=Setters
	// +required
	Strategy string `json:"strategy"`
	// +optional
	Path string `json:"path,omitempty"`
}

// ImageUpdateAutomationStatus is what was observed of the automation.
type ImageUpdateAutomationStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// LastAutomationRunTime is the time of the last run of the automation.
	// +optional
	LastAutomationRunTime *meta.Time `json:"lastAutomationRunTime,omitempty"`

	// LastPushCommit is the last pushed commit.
	// +optional
	LastPushCommit string `json:"lastPushCommit,omitempty"`

	// LastPushTime is the time of the last push.
	// +optional
	LastPushTime *meta.Time `json:"lastPushTime,omitempty"`
}

// ImageUpdateAutomation is the legacy form of the current version's kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=iua;imgupd;imgauto,categories=all;fluxcd;fluxcd-images
// +kubebuilder:printcolumn:name="Last run",type=string,JSONPath=`.status.lastAutomationRunTime`
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type ImageUpdateAutomation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImageUpdateAutomationSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ImageUpdateAutomationStatus `json:"status,omitempty"`
}

// ImageUpdateAutomationList is a list of automations.
// +kubebuilder:object:root=true
type ImageUpdateAutomationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageUpdateAutomation `json:"items"`
}
