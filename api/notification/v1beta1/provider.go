package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ProviderSpec says where events are sent, and how.
type ProviderSpec struct {
	// Type of what events are sent to.
	// +kubebuilder:validation:Enum=slack;discord;msteams;rocket;generic;github;gitlab;bitbucket;azuredevops;
	// +> googlechat;webex;sentry;azureeventhub;telegram;lark;matrix;opsgenie;alertmanager;grafana;githubdispatch
	// +required
	Type string `json:"type"`

	// Channel to which events go, where the type has some.
	// +optional
	Channel string `json:"channel,omitempty"`

	// Username under which events are posted, where the type has some.
	// +optional
	Username string `json:"username,omitempty"`

	// Address to which events go. The Secret's key address is taken before it.
	// +kubebuilder:validation:Pattern="^(http|https)://"
	// +optional
	Address string `json:"address,omitempty"`

	// Timeout of one try to send an event.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Proxy is the URL of an HTTP proxy.
	// +kubebuilder:validation:Pattern="^(http|https)://"
	// +optional
	Proxy string `json:"proxy,omitempty"`

	// SecretRef names the Secret with what the type asks for, such as token, username and password, address
	// and headers.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef names the Secret with certificates: caFile or ca.crt.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// Suspend stops the sending.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// Provider is where events are sent.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
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
