package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// AlertKind is the kind's name.
const AlertKind = "Alert"

// Values of spec.eventSeverity.
const (
	InfoSeverity  = "info"
	ErrorSeverity = "error"
)

// Any as the name of an event source selects all objects of its kind. As the namespace, it selects all namespaces.
const Any = "*"

// ValidationFailedReason is the reason of an Alert or Provider that must be changed.
const ValidationFailedReason = "ValidationFailed"

// SummaryKey is the key of the summary in spec.eventMetadata.
const SummaryKey = "summary"

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
	EventSources []EventSource `json:"eventSources"`

	// InclusionList holds regular expressions in Go syntax. Only events whose message matches one of them are sent.
	// +optional
	InclusionList []string `json:"inclusionList,omitempty"`

	// EventMetadata is added to the metadata of events. It does not replace keys that an event already has.
	// +optional
	EventMetadata map[string]string `json:"eventMetadata,omitempty"`

	// ExclusionList holds regular expressions in Go syntax. Events whose message matches one of them are not sent.
	// +optional
	ExclusionList []string `json:"exclusionList,omitempty"`

	// Summary of the events for the reader, such as their impact.
	// Deprecated: set the key summary of spec.eventMetadata.
	// +kubebuilder:validation:MaxLength:=255
	// +optional
	Summary string `json:"summary,omitempty"`

	// Suspend stops the alert.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// EventSource selects objects of a kind, by name or by label.
type EventSource struct {
	// APIVersion of the kind. Only the group is used.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the objects.
	// +kubebuilder:validation:Enum=Bucket;GitRepository;Kustomization;HelmRelease;HelmChart;HelmRepository;
	// +> ImageRepository;ImagePolicy;ImageUpdateAutomation;OCIRepository;ArtifactGenerator;ExternalArtifact;Gate;
	// +> ResourceSetInputProvider;ClusterInputProvider
	// +required
	Kind string `json:"kind"`

	// Name of the object, or * for all objects, or for all objects that matchLabels selects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the objects, or * for all namespaces. Defaults to the namespace of the Alert.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// MatchLabels selects objects by label. It requires the name *.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// AlertStatus is what was observed of the Alert.
type AlertStatus struct {
	meta.Status `json:",inline"`
}

// Alert sends events to a Provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-notifications
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> priority=1
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> priority=1
type Alert struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AlertSpec   `json:"spec,omitempty"`
	Status AlertStatus `json:"status,omitempty"`
}

// AlertList is a list of Alerts.
// +kubebuilder:object:root=true
type AlertList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Alert `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (a *Alert) CommonStatus() *meta.Status { return &a.Status.Status }

// Schedule returns when the Alert is reconciled: only when it or its Provider changes.
func (a *Alert) Schedule() meta.Schedule { return meta.Schedule{Suspended: a.Spec.Suspend} }
