package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// ImagePolicySpec is the legacy form of the current version's.
type ImagePolicySpec struct {
	// ImageRepositoryRef references the repository whose tags are ordered.
	// +required
	ImageRepositoryRef meta.NamespacedName `json:"imageRepositoryRef"`

	// Policy that orders the tags.
	// +required
	Policy ImagePolicyChoice `json:"policy"`

	// FilterTags defines which tags are considered, and which part of them is ordered.
	// +optional
	FilterTags *imagev1.TagFilter `json:"filterTags,omitempty"`
}

// ImagePolicyChoice is one order of tags.
type ImagePolicyChoice struct {
	// +optional
	SemVer *imagev1.SemVerPolicy `json:"semver,omitempty"`
	// +optional
	Alphabetical *imagev1.OrderPolicy `json:"alphabetical,omitempty"`
	// +optional
	Numerical *imagev1.OrderPolicy `json:"numerical,omitempty"`
}

// ImagePolicyStatus is what was observed of the policy.
type ImagePolicyStatus struct {
	// ObservedGeneration is the last generation of the object that was reconciled.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the object.
	// +optional
	Conditions meta.Conditions `json:"conditions,omitempty"`

	// LatestImage is the latest image according to the policy, with its tag.
	// +optional
	LatestImage string `json:"latestImage,omitempty"`
}

// ImagePolicy is the legacy form of the current version's kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=imgpol;imagepol,categories=all;fluxcd;fluxcd-images
// +kubebuilder:printcolumn:name="LatestImage",type=string,JSONPath=`.status.latestImage`
type ImagePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImagePolicySpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ImagePolicyStatus `json:"status,omitempty"`
}

// ImagePolicyList is a list of policies.
// +kubebuilder:object:root=true
type ImagePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImagePolicy `json:"items"`
}
