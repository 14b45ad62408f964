package v1

import "strings"

// Condition reasons of the image kinds, beside those of package meta.
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
	OrderAscending  = "asc"    // the last one is the latest
	OrderDescending = "desc"   // the first one is the latest
	OrderNewest     = "newest" // the one that was made last is the latest
	OrderOldest     = "oldest"
)

// ImageRef is an image at a tag, and maybe at a digest.
type ImageRef struct {
	// Name is the image's repository, without tag.
	// +required
	Name string `json:"name"`

	// Tag of the image.
	// +required
	Tag string `json:"tag"`

	// Digest that the tag pointed to, as sha256:<hex>.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// String returns the reference as a container would name it: name:tag, or name:tag@digest.
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
