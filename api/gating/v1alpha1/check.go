package v1alpha1

import "github.com/sluice-gitops/sluice/api/meta"

// Check is a condition that must be met for a gate to be open.
// +kubebuilder:validation:XValidation:rule="[has(self.object), has(self.http), has(self.prometheus)].filter(x,
// +>  x).size() == 1",message="exactly one of object, http and prometheus must be set"
type Check struct {
	// Name of the check.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// Interval of the check. Defaults to 1m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <=
	// +>  duration('24h')",message="interval must be between 1s and 24h"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Timeout of one attempt. Defaults to 10s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <=
	// +>  duration('1m')",message="timeout must be between 1ms and 1m"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// For is how long the check must have passed without interruption.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="for must be 720h at most"
	// +optional
	For *meta.Duration `json:"for,omitempty"`

	// Object that must exist and meet an expression.
	// +optional
	Object *ObjectCheck `json:"object,omitempty"`

	// HTTP endpoint that must respond with a 2xx status.
	// +optional
	HTTP *HTTPCheck `json:"http,omitempty"`

	// Prometheus query whose values must be below a threshold.
	// +optional
	Prometheus *PrometheusCheck `json:"prometheus,omitempty"`
}

// ObjectCheck is an expression over an object of the cluster. The object is read with the ServiceAccount of the gate.
type ObjectCheck struct {
	// APIVersion of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +required
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Namespace of the object. Defaults to the namespace of the gate. Ignored for cluster-scoped kinds.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Expression in CEL that must be true. Its variable is object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +required
	Expression string `json:"expression"`
}

// HTTPCheck is an endpoint that must respond with a 2xx status.
type HTTPCheck struct {
	// URL to request with GET.
	// +kubebuilder:validation:Pattern="^https?://.+$"
	// +kubebuilder:validation:MaxLength=2048
	// +required
	URL string `json:"url"`
	// SecretRef references a Secret with a bearerToken, or with a username and a password.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
	// CertSecretRef references a Secret with ca.crt and optionally tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`
}

// PrometheusCheck is an instant query whose values must all be below a threshold. The check fails if the
// query returns no values.
type PrometheusCheck struct {
	// Address of Prometheus, without the path /api/v1/query.
	// +kubebuilder:validation:Pattern="^https?://.+$"
	// +kubebuilder:validation:MaxLength=2048
	// +required
	Address string `json:"address"`
	// Query in PromQL.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +required
	Query string `json:"query"`
	// Below is the threshold. Every value must be lower.
	// +kubebuilder:validation:Pattern="^-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]+)?$"
	// +kubebuilder:validation:MaxLength=64
	// +required
	Below string `json:"below"`
	// SecretRef references a Secret with a bearerToken, or with a username and a password.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
	// CertSecretRef references a Secret with ca.crt and optionally tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`
}
