package v1

import "strings"

// Condition reasons of the image kinds, in addition to those of package meta.
const (
	ImageURLInvalidReason       = "ImageURLInvalid"
	IntervalNotConfiguredReason = "IntervalNotConfigured"
	InvalidExclusionReason      = "InvalidExclusionList"
	InvalidPolicyReason         = "InvalidPolicy"
	ReadOperationFailedReason   = "ReadOperationFailed"

	InvalidPolicySelectorReason      = "InvalidPolicySelector"
	InvalidSourceConfigurationReason = "InvalidSourceConfiguration"
	InvalidUpdateStrategyReason      = "InvalidUpdateStrategy"
	RemovedTemplateFieldReason       = "RemovedTemplateField"
	SourceManagerFailedReason        = "SourceManagerFailed"
	UpdateFailedReason               = "UpdateFailed"
)

// Orders of tags.
const (
	OrderAscending  = "asc"    // the last tag is the latest
	OrderDescending = "desc"   // the first tag is the latest
	OrderNewest     = "newest" // the tag of the image that was created last is the latest
	OrderOldest     = "oldest"
)

// ImageRef is an image with a tag, and optionally a digest.
type ImageRef struct {
	// Name is the repository of the image, without tag.
	// +required
	Name string `json:"name"`

	// Tag of the image.
	// +required
	Tag string `json:"tag"`

	// Digest that the tag pointed to, as sha256:<hex>.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// String returns the reference in the form that containers use: name:tag, or name:tag@digest.
func (r ImageRef) String() string {
	var b strings.Builder
	b.WriteString(r.Name)
	if r.Tag != "" {
		b.WriteString(":" + r.Tag)
	}
	if r.Digest != "" {
		b.WriteString("@" + r.Digest)
	}
	return b.String()
}
