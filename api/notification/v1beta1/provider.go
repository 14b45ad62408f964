package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ProviderSpec defines where and how events are sent.
type ProviderSpec struct {
	// Type of the service that receives the events.
	// +kubebuilder:validation:Enum=slack;discord;msteams;rocket;generic;github;gitlab;bitbucket;azuredevops;
	// +> googlechat;webex;sentry;azureeventhub;telegram;lark;matrix;opsgenie;alertmanager;grafana;githubdispatch
	// +required
	Type string `json:"type"`

	// Channel that events are sent to, if the type supports channels.
	// +optional
	Channel string `json:"channel,omitempty"`

	// Username that events are posted with, if the type supports it.
	// +optional
	Username string `json:"username,omitempty"`

	// Address that events are sent to. The key address of the Secret takes precedence.
	// +kubebuilder:validation:Pattern="^(http|https)://"
	// +optional
	Address string `json:"address,omitempty"`

	// Timeout of one attempt to send an event.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Proxy is the URL of an HTTP proxy.
	// +kubebuilder:validation:Pattern="^(http|https)://"
	// +optional
	Proxy string `json:"proxy,omitempty"`

	// SecretRef references the Secret with the credentials and settings of the type, such as token, username,
	// password, address and headers.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef references the Secret with the CA certificate, in the key ca.crt or caFile.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// Suspend stops sending.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// Provider defines where and how events are sent.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-notifications
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
type Provider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ProviderSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status Status `json:"status,omitempty"`
}

// ProviderList is a list of Providers.
// +kubebuilder:object:root=true
type ProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Provider `json:"items"`
}
