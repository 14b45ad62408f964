package meta

// Modes of drift detection.
const (
	DriftEnabled  = "enabled"
	DriftWarn     = "warn"
	DriftDisabled = "disabled"
)

// DriftDetection says what happens when live objects are no longer as they were applied.
type DriftDetection struct {
	// Mode: enabled corrects drift as it happens, warn reports it and changes nothing, disabled does not look.
	// +kubebuilder:validation:Enum=enabled;warn;disabled
	// +optional
	Mode string `json:"mode,omitempty"`
	// Ignore lists fields whose drift is neither reported nor corrected.
	// +optional
	Ignore []IgnoreRule `json:"ignore,omitempty"`
}

// IgnoreRule lists fields of objects that are not corrected when they drift.
type IgnoreRule struct {
	// Paths of the fields, as JSON pointers (RFC 6901).
	// +required
	Paths []string `json:"paths"`
	// Target objects; all when unset.
	// +optional
	Target *Selector `json:"target,omitempty"`
}
