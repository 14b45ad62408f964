package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// ClusterInputProviderKind is the kind's name.
const ClusterInputProviderKind = "ClusterInputProvider"

// Kinds of objects that stand for a cluster.
const (
	ClusterOfSecret  = "Secret"  // with a kubeconfig
	ClusterOfCluster = "Cluster" // of Cluster API
)

// defaultClusterInterval is how often clusters are checked.
const defaultClusterInterval = 10 * time.Minute

// clusterTimeout is the timeout of one reconcile.
const clusterTimeout = 2 * time.Minute

// ClusterInputProviderSpec selects clusters.
type ClusterInputProviderSpec struct {
	// Kind of the objects that stand for clusters: Secrets with a kubeconfig, or Clusters of Cluster API.
	// +kubebuilder:validation:Enum=Secret;Cluster
	// +kubebuilder:default:=Secret
	// +optional
	Kind string `json:"kind,omitempty"`

	// Selector of the objects, in the namespace of the provider. An empty one selects all.
	// +optional
	Selector metav1.LabelSelector `json:"selector,omitempty"`

	// DefaultValues are added to each input set that lacks them.
	// +optional
	DefaultValues controlplanev1.InputSet `json:"defaultValues,omitempty"`

	// Interval at which the clusters are asked for their version. Defaults to 10m. New and changed objects are seen at
	// once.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Suspend stops the provider. It keeps its inputs.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ClusterInputProviderStatus is what was observed of the clusters.
type ClusterInputProviderStatus struct {
	meta.Status `json:",inline"`

	// ExportedInputs are the input sets, one for each cluster.
	// +optional
	ExportedInputs []controlplanev1.InputSet `json:"exportedInputs,omitempty"`

	// LastExportedRevision is a digest of the input sets.
	// +optional
	LastExportedRevision string `json:"lastExportedRevision,omitempty"`
}

// ClusterInputProvider exports clusters as inputs of ResourceSets.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cip,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
type ClusterInputProvider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterInputProviderSpec   `json:"spec,omitempty"`
	Status ClusterInputProviderStatus `json:"status,omitempty"`
}

// ClusterInputProviderList is a list of providers.
// +kubebuilder:object:root=true
type ClusterInputProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterInputProvider `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (p *ClusterInputProvider) CommonStatus() *meta.Status { return &p.Status.Status }

// Schedule returns the interval at which the clusters are checked.
func (p *ClusterInputProvider) Schedule() meta.Schedule {
	s := meta.Schedule{Interval: defaultClusterInterval, Timeout: clusterTimeout, Suspended: p.Spec.Suspend}
	if p.Spec.Interval != nil && p.Spec.Interval.Duration > 0 {
		s.Interval = p.Spec.Interval.Duration
	}
	return s
}
