package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Check is a condition that must be met for a gate to be open.
// +kubebuilder:validation:XValidation:rule="[has(self.object), has(self.http), has(self.prometheus),
// +>  has(self.revision), has(self.clusters)].filter(x, x).size() == 1",message="exactly one of object, http,
// +>  prometheus, revision and clusters must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.revision) || !has(self.__for__)",message="for cannot be combined
// +>  with revision: set revision.soak"
// +kubebuilder:validation:XValidation:rule="!has(self.clusters) || !has(self.__for__)",message="for cannot be combined
// +>  with clusters: set clusters.soak"
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

	// Revision that other objects have been Ready at. The gate allows only this revision.
	// +optional
	Revision *RevisionCheck `json:"revision,omitempty"`

	// Clusters of the hub that have been Ready at a revision. The gate allows only this revision.
	// +optional
	Clusters *ClustersCheck `json:"clusters,omitempty"`
}

// ClustersCheck allows exactly the revision of a source that a share of other clusters has been Ready at for a time.
// The cluster asks the hub that it reports to.
type ClustersCheck struct {
	// Labels that the clusters have at the hub. The cluster of the gate does not count. Defaults to all clusters.
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Share of these clusters that must be Ready at the revision, such as 80%. Defaults to 100%.
	// +kubebuilder:validation:Pattern="^(100|[1-9][0-9]?)%$"
	// +optional
	Share string `json:"share,omitempty"`
	// Source whose revision counts. It has the same kind, namespace and name in each of the clusters.
	// +required
	Source ClustersSource `json:"source"`
	// Soak is how long the share of clusters must have been Ready at the revision without interruption. Defaults to 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="soak must be 720h at most"
	// +optional
	Soak *meta.Duration `json:"soak,omitempty"`
	// OnHubLost is whether the check passes, for each revision, when the hub has not answered for twice the interval of
	// the check: open or closed. Defaults to closed.
	// +optional
	OnHubLost HubLost `json:"onHubLost,omitempty"`
}

// ClustersSource is a source that clusters have.
type ClustersSource struct {
	// Kind of the source.
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;HelmChart;Bucket;ExternalArtifact
	// +required
	Kind string `json:"kind"`
	// Name of the source.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Namespace of the source. Defaults to the namespace of the gate.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// HubLost is what a check does without its hub.
// +kubebuilder:validation:Enum=open;closed
type HubLost string

// Values of HubLost.
const (
	OpenWithoutHub   HubLost = "open"
	ClosedWithoutHub HubLost = "closed"
)

// RevisionCheck allows exactly the revision that other objects have been Ready at for a time. In the cluster of the
// gate, the objects are read with the ServiceAccount of the gate.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.selector)",message="exactly one of name and
// +>  selector must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.kubeConfig) || has(self.kubeConfig.secretRef) !=
// +>  has(self.kubeConfig.configMapRef)",message="exactly one of kubeConfig.secretRef and kubeConfig.configMapRef
// +>  must be set"
type RevisionCheck struct {
	// Kind of the objects.
	// +required
	Kind PromotingKind `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// Selector selects the objects by their labels. All of them must be Ready at the same revision.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Namespace of the objects. Defaults to the namespace of the gate.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// KubeConfig references the credentials of another cluster, in which the objects are read with the account of
	// these credentials. Defaults to the cluster of the gate.
	// +optional
	KubeConfig *meta.KubeConfigReference `json:"kubeConfig,omitempty"`
	// Soak is how long the objects must have been Ready at the revision without interruption. Defaults to 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="soak must be 720h at most"
	// +optional
	Soak *meta.Duration `json:"soak,omitempty"`
}

// PromotingKind is a kind whose revisions a gate can wait for.
// +kubebuilder:validation:Enum=Kustomization;HelmRelease;GitRepository;OCIRepository;HelmChart;Bucket;ExternalArtifact
type PromotingKind string

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
