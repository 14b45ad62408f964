package meta

// Modes of drift detection.
const (
	DriftEnabled  = "enabled"
	DriftWarn     = "warn"
	DriftDisabled = "disabled"
)

// DriftDetection defines what happens when live objects differ from what was applied.
type DriftDetection struct {
	// Mode of drift detection. With enabled, drift is corrected; with warn, it is only reported; with
	// disabled, it is not detected.
	// +kubebuilder:validation:Enum=enabled;warn;disabled
	// +optional
	Mode string `json:"mode,omitempty"`
	// Ignore lists fields whose drift is ignored. It is not reported and not corrected.
	// +optional
	Ignore []IgnoreRule `json:"ignore,omitempty"`
}

// IgnoreRule lists fields of objects that are not corrected when they drift.
type IgnoreRule struct {
	// Paths of the fields, as JSON pointers (RFC 6901).
	// +required
	Paths []string `json:"paths"`
	// Target selects the objects. If unset, the rule applies to all objects.
	// +optional
	Target *Selector `json:"target,omitempty"`
}
