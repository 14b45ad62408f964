package v1beta3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// AlertKind is the kind's name.
const AlertKind = "Alert"

// Severities that spec.eventSeverity knows.
const (
	InfoSeverity  = "info"
	ErrorSeverity = "error"
)

// Any as the name of an event source stands for all of its kind, as the namespace for all namespaces.
const Any = "*"

// Reasons of the conditions of Alerts and Providers.
const (
	ValidationFailedReason = "ValidationFailed"
	TokenNotFoundReason    = "TokenNotFound"
)

// SummaryKey is the key of spec.eventMetadata that has the summary.
const SummaryKey = "summary"

// AlertSpec says which events are told, and by whom.
type AlertSpec struct {
	// ProviderRef names the Provider that sends the events, in the Alert's namespace.
	// +required
	ProviderRef meta.LocalObjectReference `json:"providerRef"`

	// EventSeverity of the events: info for all of them, error for failures.
	// +kubebuilder:validation:Enum=info;error
	// +kubebuilder:default:=info
	// +optional
	EventSeverity string `json:"eventSeverity,omitempty"`

	// EventSources are the objects whose events count.
	// +required
	EventSources []EventSource `json:"eventSources"`

	// InclusionList holds regular expressions in the syntax of Go; an event counts if its message matches one of them.
	// +optional
	InclusionList []string `json:"inclusionList,omitempty"`

	// EventMetadata is added to the metadata of events. What an event has by itself stays as it is.
	// +optional
	EventMetadata map[string]string `json:"eventMetadata,omitempty"`

	// ExclusionList holds regular expressions in the syntax of Go; an event does not count if its message
	// matches one of them.
	// +optional
	ExclusionList []string `json:"exclusionList,omitempty"`

	// Summary of what the events mean to who reads them.
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
	// APIVersion of the kind; only its group counts.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the objects.
	// +kubebuilder:validation:Enum=Bucket;GitRepository;Kustomization;HelmRelease;HelmChart;HelmRepository;
	// +> ImageRepository;ImagePolicy;ImageUpdateAutomation;OCIRepository;ArtifactGenerator;ExternalArtifact;Gate
	// +required
	Kind string `json:"kind"`

	// Name of the object; * for all, or all with matchLabels.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the objects; the Alert's when unset, and * for all namespaces.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// MatchLabels that the objects have, with the name *.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// AlertStatus is what was observed of the Alert.
type AlertStatus struct {
	meta.Status `json:",inline"`
}

// Alert tells a Provider of events.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
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
