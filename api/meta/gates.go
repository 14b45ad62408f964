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
	// Gates that must all be open before a change is taken up. Gates with a selector may stand over the
	// object beside these.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Gates []GateReference `json:"gates,omitempty"`
}

// Held is the part of the status of what gates can hold, written by the reconcile kernel alone.
type Held struct {
	// Gates that stand over the object, named by it or selecting it, as <namespace>/<name>. Its conditions
	// say which are closed.
	// +optional
	Gates []string `json:"gates,omitempty"`

	// Pending is the change that waits until the gates let it through; unset when none does.
	// +optional
	Pending *Pending `json:"pending,omitempty"`
}

// Pending is a change that gates hold back.
type Pending struct {
	// Revision that the object would move to.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Since is when it began to wait.
	// +optional
	Since *Time `json:"since,omitempty"`

	// Created is how many objects would be created.
	// +optional
	Created int32 `json:"created,omitempty"`

	// Configured is how many objects would be changed.
	// +optional
	Configured int32 `json:"configured,omitempty"`

	// Deleted is how many objects would be deleted.
	// +optional
	Deleted int32 `json:"deleted,omitempty"`

	// Changes names the first of them, as <kind>/<namespace>/<name> <what would be done>.
	// +optional
	Changes []string `json:"changes,omitempty"`

	// Message says why the change cannot be told, when it cannot.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterRef says which cluster an object deploys to: the one with the kubeconfig of a Secret, the one that a
// ConfigMap describes, or, where neither is named, the object's own.
// +kubebuilder:object:generate=false
type ClusterRef struct{ Secret, ConfigMap string }
