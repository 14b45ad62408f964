package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ImagePolicyKind is the kind's name.
const ImagePolicyKind = "ImagePolicy"

// When the digest of the latest image is told.
const (
	ReflectAlways       = "Always"       // and read again at every interval
	ReflectIfNotPresent = "IfNotPresent" // and kept as long as the tag is the latest
	ReflectNever        = "Never"
)

// ImagePolicySpec says which tag of a repository is the latest.
// +kubebuilder:validation:XValidation:rule="!has(self.interval) || (has(self.digestReflectionPolicy) &&
// +>  self.digestReflectionPolicy == 'Always')",message="spec.interval is for spec.digestReflectionPolicy 'Always'
// +>  only"
// +kubebuilder:validation:XValidation:rule="has(self.interval) || !has(self.digestReflectionPolicy) ||
// +>  self.digestReflectionPolicy != 'Always'",message="spec.interval is required when spec.digestReflectionPolicy is
// +>  'Always'"
type ImagePolicySpec struct {
	// ImageRepositoryRef names the repository whose tags are ordered.
	// +required
	ImageRepositoryRef meta.NamespacedName `json:"imageRepositoryRef"`

	// Policy by which tags are ordered.
	// +required
	Policy ImagePolicyChoice `json:"policy"`

	// FilterTags says which tags count, and which part of them is ordered; all, whole, when unset.
	// +optional
	FilterTags *TagFilter `json:"filterTags,omitempty"`

	// DigestReflectionPolicy says whether the digest of the latest image is told: read again at every
	// interval (Always), read once a tag (IfNotPresent), or not (Never).
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +kubebuilder:default:=Never
	// +optional
	DigestReflectionPolicy string `json:"digestReflectionPolicy,omitempty"`

	// Interval at which the digest is read again, with digestReflectionPolicy Always.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Suspend stops reconciling; the latest image stays as it is.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ImagePolicyChoice is one order of tags. If several are set, the first of semver, alphabetical, numerical,
// createdAt and cel.order counts. A cel.filter goes with any of them.
type ImagePolicyChoice struct {
	// SemVer takes the highest version within a range.
	// +optional
	SemVer *SemVerPolicy `json:"semver,omitempty"`

	// Alphabetical takes the last or the first tag in the order of their bytes.
	// +optional
	Alphabetical *OrderPolicy `json:"alphabetical,omitempty"`

	// Numerical takes the highest or the lowest number.
	// +optional
	Numerical *OrderPolicy `json:"numerical,omitempty"`

	// CreatedAt takes the image that was made last, or first.
	// +optional
	CreatedAt *CreatedAtPolicy `json:"createdAt,omitempty"`

	// CEL filters and orders tags by expressions.
	// +optional
	CEL *CELPolicy `json:"cel,omitempty"`
}

// SemVerPolicy orders tags that are semantic versions.
type SemVerPolicy struct {
	// Range of versions, such as ">=1.0.0 <2.0.0"; one that names no prerelease matches none.
	// +required
	Range string `json:"range"`
}

// OrderPolicy orders tags by what they say.
type OrderPolicy struct {
	// Order: the last of asc is the latest, or the last of desc.
	// +kubebuilder:default:="asc"
	// +kubebuilder:validation:Enum=asc;desc
	// +optional
	Order string `json:"order,omitempty"`
}

// CreatedAtPolicy orders tags by the time that their images say they were created at.
type CreatedAtPolicy struct {
	// Order: whether the newest or the oldest is the latest.
	// +kubebuilder:default:="newest"
	// +kubebuilder:validation:Enum=newest;oldest
	// +optional
	Order string `json:"order,omitempty"`
}

// CELPolicy holds expressions over the variables tag, extracted (what filterTags.extract gives), digest,
// labels, platforms and created.
type CELPolicy struct {
	// Filter is true for tags that count; all when unset.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Filter string `json:"filter,omitempty"`

	// Order gives a number, a string or a time; the tag with the greatest is the latest.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Order string `json:"order,omitempty"`
}

// TagFilter says which tags count, and which part of them is ordered.
type TagFilter struct {
	// Pattern is a regular expression; tags that it does not match do not count.
	// +optional
	Pattern string `json:"pattern"`

	// Extract is what is ordered in place of the tag: text with groups of the pattern, such as $ts.
	// +optional
	Extract string `json:"extract"`
}

// ImagePolicyStatus is what was observed of the policy.
type ImagePolicyStatus struct {
	meta.Status `json:",inline"`

	// LatestRef is the image that the policy takes for the latest.
	// +optional
	LatestRef *ImageRef `json:"latestRef,omitempty"`

	// ObservedPreviousRef is the latest image before it.
	// +optional
	ObservedPreviousRef *ImageRef `json:"observedPreviousRef,omitempty"`

	// LatestImage is the latest image, for clients of v1beta1 and v1beta2.
	// Deprecated: use latestRef.
	// +optional
	LatestImage string `json:"latestImage,omitempty"`

	// ObservedPreviousImage is the one before it, for clients of v1beta2.
	// Deprecated: use observedPreviousRef.
	// +optional
	ObservedPreviousImage string `json:"observedPreviousImage,omitempty"`
}

// ImagePolicy tells which image of a repository is the latest, by an order of its tags.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=imgpol;imagepol
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

// Schedule returns when the policy is reconciled by itself: at its interval where its digest is to be read
// again, else when the repository was scanned.
func (p *ImagePolicy) Schedule() meta.Schedule {
	s := meta.Schedule{Suspended: p.Spec.Suspend}
	if p.Spec.Interval != nil {
		s.Interval = p.Spec.Interval.Duration
	}
	return s
}

// SetLatest moves the latest image into the status; the one before it stays visible.
func (p *ImagePolicy) SetLatest(latest ImageRef) {
	if before := p.Status.LatestRef; before != nil && *before != latest {
		p.Status.ObservedPreviousRef, p.Status.ObservedPreviousImage = before, before.String()
	}
	p.Status.LatestRef, p.Status.LatestImage = &latest, latest.String()
}
