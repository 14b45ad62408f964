package v1alpha1

import (
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

// OnFailure is what a gate does when a change that it let through becomes unhealthy.
// +kubebuilder:validation:Enum=Hold;Revert
type OnFailure string

// Values of spec.onFailure.
const (
	OnFailureHold   OnFailure = "Hold"   // the gate closes
	OnFailureRevert OnFailure = "Revert" // in addition, objects go back to what was healthy
)

// DefaultSoak is how long a change is watched if spec.soak is unset.
const DefaultSoak = 10 * time.Minute

// Maximum lengths of the lists of failures.
const (
	MaxFailures      = 50 // changes, newest first
	MaxFailedObjects = 10 // objects of each
)

// FailedChange is a change that the gate let through, and that became unhealthy.
type FailedChange struct {
	// Revision that failed.
	// +required
	Revision string `json:"revision"`
	// Change identifies what failed if the revision does not: other values of a release, or another spec. Only the
	// object that failed has it.
	// +optional
	Change string `json:"change,omitempty"`
	// Since is the time of the first failure.
	// +required
	Since meta.Time `json:"since"`
	// Message names the object that failed first, and its cause.
	// +required
	Message string `json:"message"`
	// Objects that failed, in the order of their failures; at most 10.
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Objects []FailedObject `json:"objects,omitempty"`
	// RefusedBy is who made these objects go back, if it was a person: the change has not failed then, and the gate
	// refuses it for these objects only.
	// +optional
	RefusedBy string `json:"refusedBy,omitempty"`
	// ResolvedAt is the time since when all these objects are healthy again, with the last healthy revision or a newer
	// one. The gate then refuses this revision only.
	// +optional
	ResolvedAt *meta.Time `json:"resolvedAt,omitempty"`
}

// FailedObject is an object that became unhealthy.
type FailedObject struct {
	// Kind of the object.
	// +required
	Kind string `json:"kind"`
	// Namespace of the object.
	// +required
	Namespace string `json:"namespace"`
	// Name of the object.
	// +required
	Name string `json:"name"`
}

// GetSoak returns how long after it was first Ready a change is watched.
func (g *Gate) GetSoak() time.Duration {
	if g.Spec.Soak == nil || g.Spec.Soak.Duration <= 0 {
		return DefaultSoak
	}
	return g.Spec.Soak.Duration
}
