package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ReceiverSpec says whose webhooks are taken, and what they wake.
type ReceiverSpec struct {
	// Type of the sender, by which requests are checked and read.
	// +kubebuilder:validation:Enum=generic;generic-hmac;github;gitlab;bitbucket;harbor;dockerhub;quay;gcr;nexus;acr
	// +required
	Type string `json:"type"`

	// Events that are acted on, such as push for GitHub or "Push Hook" for GitLab; all when empty.
	// +optional
	Events []string `json:"events,omitempty"`

	// Resources that a request wakes.
	// +required
	Resources []ReceiverResource `json:"resources"`

	// SecretRef names the Secret with the token, in the Receiver's namespace.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Suspend stops the handling of requests.
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

	// Name of the object; * for all, or all with matchLabels.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +required
	Name string `json:"name"`

	// Namespace of the objects; the Receiver's when unset.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// MatchLabels that the objects have, with the name *.
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

	// URL is the path at which requests are taken.
	// +optional
	URL string `json:"url,omitempty"`
}

// Receiver takes webhooks, and wakes what they are about.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
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
