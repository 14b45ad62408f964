package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Bounds of spec.waves.
const (
	MaxWaveMembers = 1000 // objects behind a gate with waves
	MaxWaveSources = 100  // sources of these objects
)

// Wave is a part of the objects behind a gate. It takes a revision after the waves before it.
type Wave struct {
	// Name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// Selector selects the Kustomizations and HelmReleases of the wave by their labels. An object belongs to the first
	// wave that selects it.
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// MaxConcurrent is how many objects of the wave may move to a revision at a time: a number, or a percentage of the
	// wave, which is rounded down to at least 1. If unset, all may.
	// +optional
	MaxConcurrent *meta.Amount `json:"maxConcurrent,omitempty"`

	// Soak is how long all objects of the wave must have been Ready at the revision, without interruption, before the
	// next wave starts. Defaults to 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="soak must be 720h at most"
	// +optional
	Soak *meta.Duration `json:"soak,omitempty"`
}

// WaveProgress is how far the revision of one source has come through the waves.
type WaveProgress struct {
	// Kind of the objects.
	// +required
	Kind string `json:"kind"`
	// Source of the objects, as <kind>/<namespace>/<name>, and the name of the chart if the source has several.
	// +required
	Source string `json:"source"`
	// Revision that the objects move to.
	// +required
	Revision string `json:"revision"`
	// Wave in progress. It is empty if all objects have the revision, and in the last wave, of the objects that no wave
	// selects.
	// +optional
	Wave string `json:"wave,omitempty"`
	// Passed are the waves that have been Ready at the revision for their soak.
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Passed []string `json:"passed,omitempty"`
	// Complete reports whether all objects have the revision.
	// +optional
	Complete bool `json:"complete,omitempty"`
	// Since is the time since when the wave in progress is Ready at the revision, as far as the gate has observed.
	// +optional
	Since *meta.Time `json:"since,omitempty"`
	// Until is the time at which its soak ends.
	// +optional
	Until *meta.Time `json:"until,omitempty"`
	// ObservedAt is the last time at which the wave was found to be Ready during its soak.
	// +optional
	ObservedAt *meta.Time `json:"observedAt,omitempty"`
	// Digest identifies the objects of the wave, their generations, and since when they are Ready.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Message says how far the wave is, and what it waits for.
	// +required
	Message string `json:"message"`
}
