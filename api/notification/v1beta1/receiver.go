package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ReceiverSpec defines which webhook requests are accepted and which objects they reconcile.
type ReceiverSpec struct {
	// Type of the sender. It determines how requests are authenticated and parsed.
	// +kubebuilder:validation:Enum=generic;generic-hmac;github;gitlab;bitbucket;harbor;dockerhub;quay;gcr;nexus;acr
	// +required
	Type string `json:"type"`

	// Events to handle, such as push for GitHub or "Push Hook" for GitLab. If empty, all events are handled.
	// +optional
	Events []string `json:"events,omitempty"`

	// Resources to reconcile on a request.
	// +required
	Resources []ReceiverResource `json:"resources"`

	// SecretRef references the Secret with the token, in the namespace of the Receiver.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Suspend stops handling requests.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ReceiverResource selects objects of a kind, by name or by label.
type ReceiverResource struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// +kubebuilder:validation:Enum=Bucket;GitRepository;Kustomization;HelmRelease;HelmChart;HelmRepository;
	// +> ImageRepository;ImagePolicy;ImageUpdateAutomation;OCIRepository
	// +optional
	Kind string `json:"kind,omitempty"`

	// Name of the object, or * for all objects, or for all objects that matchLabels selects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +required
	Name string `json:"name"`

	// Namespace of the objects. Defaults to the namespace of the Receiver.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// MatchLabels selects objects by label. It requires the name *.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// ReceiverStatus is what was observed of the Receiver.
type ReceiverStatus struct {
	// ObservedGeneration is the last generation of the object that was reconciled.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the object.
	// +optional
	Conditions meta.Conditions `json:"conditions,omitempty"`

	// URL is the path at which requests are accepted.
	// +optional
	URL string `json:"url,omitempty"`
}

// Receiver accepts webhook requests and triggers a reconcile of the objects that it selects.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-notifications
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
type Receiver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ReceiverSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ReceiverStatus `json:"status,omitempty"`
}

// ReceiverList is a list of Receivers.
// +kubebuilder:object:root=true
type ReceiverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Receiver `json:"items"`
}
