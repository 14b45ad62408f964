package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// AlertSpec defines which events are sent, and the Provider that sends them.
type AlertSpec struct {
	// ProviderRef references the Provider that sends the events, in the namespace of the Alert.
	// +required
	ProviderRef meta.LocalObjectReference `json:"providerRef"`

	// EventSeverity is the minimum severity of the events: info for all events, error for failures only.
	// +kubebuilder:validation:Enum=info;error
	// +kubebuilder:default:=info
	// +optional
	EventSeverity string `json:"eventSeverity,omitempty"`

	// EventSources selects the objects whose events are sent.
	// +required
	EventSources []ReceiverResource `json:"eventSources"`

	// ExclusionList holds regular expressions in Go syntax. Events whose message matches one of them are not sent.
	// +optional
	ExclusionList []string `json:"exclusionList,omitempty"`

	// Summary of the events for the reader, such as their impact.
	// +optional
	Summary string `json:"summary,omitempty"`

	// Suspend stops the alert.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// Status is what was observed of an Alert or a Provider.
type Status struct {
	// ObservedGeneration is the last generation of the object that was reconciled.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the object.
	// +optional
	Conditions meta.Conditions `json:"conditions,omitempty"`
}

// Alert sends events to a Provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-notifications
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
type Alert struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AlertSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status Status `json:"status,omitempty"`
}

// AlertList is a list of Alerts.
// +kubebuilder:object:root=true
type AlertList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Alert `json:"items"`
}
