package meta

// GateReference names a Gate.
type GateReference struct {
	// Name of the Gate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the Gate; that of the referrer when unset.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Gated is the part of the spec of what gates can hold.
type Gated struct {
	// Gates that must all be open before a change is taken up. Gates with a selector may stand over the object beside these.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Gates []GateReference `json:"gates,omitempty"`
}

// Held is the part of the status of what gates can hold, written by the reconcile kernel alone.
type Held struct {
	// Gates that stand over the object, named by it or selecting it, as <namespace>/<name>. Its conditions say which are closed.
	// +optional
	Gates []string `json:"gates,omitempty"`
}
