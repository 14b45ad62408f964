package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ImagePolicyKind is the kind's name.
const ImagePolicyKind = "ImagePolicy"

// Values of spec.digestReflectionPolicy: when the digest of the latest image is added to the status.
const (
	ReflectAlways       = "Always"       // and updated at every interval
	ReflectIfNotPresent = "IfNotPresent" // and kept while the tag is the latest
	ReflectNever        = "Never"
)

// ImagePolicySpec defines which tag of a repository is the latest.
// +kubebuilder:validation:XValidation:rule="!has(self.interval) || (has(self.digestReflectionPolicy) &&
// +>  self.digestReflectionPolicy == 'Always')",message="spec.interval is for spec.digestReflectionPolicy 'Always'
// +>  only"
// +kubebuilder:validation:XValidation:rule="has(self.interval) || !has(self.digestReflectionPolicy) ||
// +>  self.digestReflectionPolicy != 'Always'",message="spec.interval is required when spec.digestReflectionPolicy is
// +>  'Always'"
type ImagePolicySpec struct {
	// ImageRepositoryRef references the repository whose tags are ordered.
	// +required
	ImageRepositoryRef meta.NamespacedName `json:"imageRepositoryRef"`

	// Policy that orders the tags.
	// +required
	Policy ImagePolicyChoice `json:"policy"`

	// FilterTags defines which tags are considered, and which part of them is ordered. If unset, all tags are
	// considered.
	// +optional
	FilterTags *TagFilter `json:"filterTags,omitempty"`

	// DigestReflectionPolicy defines whether the digest of the latest image is added to the status. With
	// Always, it is updated at every interval; with IfNotPresent, it is read once for each tag; with Never,
	// it is not added.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +kubebuilder:default:=Never
	// +optional
	DigestReflectionPolicy string `json:"digestReflectionPolicy,omitempty"`

	// Interval at which the digest is updated. For digestReflectionPolicy Always only.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Suspend stops reconciling. The latest image does not change.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ImagePolicyChoice is one order of tags. If several are set, the first of semver, alphabetical, numerical,
// createdAt and cel.order is used. A cel.filter can be combined with any of them.
type ImagePolicyChoice struct {
	// SemVer selects the highest version within a range.
	// +optional
	SemVer *SemVerPolicy `json:"semver,omitempty"`

	// Alphabetical selects the last or the first tag in byte order.
	// +optional
	Alphabetical *OrderPolicy `json:"alphabetical,omitempty"`

	// Numerical selects the highest or the lowest number.
	// +optional
	Numerical *OrderPolicy `json:"numerical,omitempty"`

	// CreatedAt selects the image that was created last, or first.
	// +optional
	CreatedAt *CreatedAtPolicy `json:"createdAt,omitempty"`

	// CEL filters and orders tags by expressions.
	// +optional
	CEL *CELPolicy `json:"cel,omitempty"`
}

// SemVerPolicy orders tags that are semantic versions.
type SemVerPolicy struct {
	// Range of versions, such as ">=1.0.0 <2.0.0". A range without a prerelease does not match prereleases.
	// +required
	Range string `json:"range"`
}

// OrderPolicy orders tags by their text or number.
type OrderPolicy struct {
	// Order of the tags: asc for ascending or desc for descending order. The last tag in this order is the latest.
	// +kubebuilder:default:="asc"
	// +kubebuilder:validation:Enum=asc;desc
	// +optional
	Order string `json:"order,omitempty"`
}

// CreatedAtPolicy orders tags by the creation time that their images record.
type CreatedAtPolicy struct {
	// Order defines whether the newest or the oldest image is the latest.
	// +kubebuilder:default:="newest"
	// +kubebuilder:validation:Enum=newest;oldest
	// +optional
	Order string `json:"order,omitempty"`
}

// CELPolicy holds expressions over the variables tag, extracted (the result of filterTags.extract), digest,
// labels, platforms and created.
type CELPolicy struct {
	// Filter is true for tags that are considered. If unset, all tags are considered.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Filter string `json:"filter,omitempty"`

	// Order returns a number, a string or a time. The tag with the greatest value is the latest.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Order string `json:"order,omitempty"`
}

// TagFilter defines which tags are considered, and which part of them is ordered.
type TagFilter struct {
	// Pattern is a regular expression. Tags that do not match it are ignored.
	// +optional
	Pattern string `json:"pattern"`

	// Extract is the text to order instead of the tag. It can use groups of the pattern, such as $ts.
	// +optional
	Extract string `json:"extract"`
}

// ImagePolicyStatus is what was observed of the policy.
type ImagePolicyStatus struct {
	meta.Status `json:",inline"`

	// LatestRef is the latest image according to the policy.
	// +optional
	LatestRef *ImageRef `json:"latestRef,omitempty"`

	// ObservedPreviousRef is the previous latest image.
	// +optional
	ObservedPreviousRef *ImageRef `json:"observedPreviousRef,omitempty"`

	// LatestImage is the latest image, for clients of v1beta1 and v1beta2.
	// Deprecated: use latestRef.
	// +optional
	LatestImage string `json:"latestImage,omitempty"`

	// ObservedPreviousImage is the previous latest image, for clients of v1beta2.
	// Deprecated: use observedPreviousRef.
	// +optional
	ObservedPreviousImage string `json:"observedPreviousImage,omitempty"`
}

// ImagePolicy selects the latest image of a repository by ordering its tags.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=imgpol;imagepol,categories=all;fluxcd;fluxcd-images
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.latestRef.name`
// +kubebuilder:printcolumn:name="Tag",type=string,JSONPath=`.status.latestRef.tag`
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
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

// CommonStatus returns the part of the status that the kernel writes.
func (p *ImagePolicy) CommonStatus() *meta.Status { return &p.Status.Status }

// Schedule returns when the policy is reconciled: at its interval if the digest must be updated, else only
// after a scan of the repository.
func (p *ImagePolicy) Schedule() meta.Schedule {
	s := meta.Schedule{Suspended: p.Spec.Suspend}
	if p.Spec.Interval != nil {
		s.Interval = p.Spec.Interval.Duration
	}
	return s
}

// SetLatest sets the latest image in the status, and keeps the previous one there.
func (p *ImagePolicy) SetLatest(latest ImageRef) {
	if before := p.Status.LatestRef; before != nil && *before != latest {
		p.Status.ObservedPreviousRef, p.Status.ObservedPreviousImage = before, before.String()
	}
	p.Status.LatestRef, p.Status.LatestImage = &latest, latest.String()
}
