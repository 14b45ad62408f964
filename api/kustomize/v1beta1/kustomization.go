package v1beta1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// KustomizationSpec says what to build from which source, and how to apply it.
type KustomizationSpec struct {
	// DependsOn lists the Kustomizations that must be ready before this one is applied.
	// +optional
	DependsOn []DependencyReference `json:"dependsOn,omitempty"`

	// Decryption of Secrets in the source.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// Interval at which the cluster is compared with the source.
	// +required
	Interval meta.Duration `json:"interval"`

	// RetryInterval after a failure; backoff up to the interval when unset.
	// +optional
	RetryInterval *meta.Duration `json:"retryInterval,omitempty"`

	// KubeConfig of a remote cluster to apply to.
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`

	// Path of the directory in the source to build; the root when unset.
	// +optional
	Path string `json:"path,omitempty"`

	// PostBuild says what happens to the manifests after the build.
	// +optional
	PostBuild *PostBuild `json:"postBuild,omitempty"`

	// Prune deletes what is no longer declared.
	// +required
	Prune bool `json:"prune"`

	// HealthChecks lists objects that must be healthy before the Kustomization is ready.
	// +optional
	HealthChecks []meta.ObjectReference `json:"healthChecks,omitempty"`

	// Patches, strategic merge or JSON, applied over the build.
	// +optional
	Patches []Patch `json:"patches,omitempty"`

	// PatchesStrategicMerge are patches in the form of partial objects.
	// +optional
	PatchesStrategicMerge []apiextensionsv1.JSON `json:"patchesStrategicMerge,omitempty"`

	// PatchesJSON6902 are JSON patches.
	// +optional
	PatchesJSON6902 []meta.JSON6902Patch `json:"patchesJson6902,omitempty"`

	// Images replaces names, tags and digests of container images.
	// +optional
	Images []meta.Image `json:"images,omitempty"`

	// ServiceAccountName is the account, in the Kustomization's namespace, that is impersonated when applying.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// SourceRef names the source.
	// +required
	SourceRef SourceReference `json:"sourceRef"`

	// Suspend stops reconciling.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// TargetNamespace overrides the namespace of every object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// Timeout of a pass and of its health checks; the interval when unset.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Force re-creates objects when an immutable field changes.
	// +kubebuilder:default=false
	// +optional
	Force bool `json:"force,omitempty"`

	// Validation before applying; objects are always dry-run by the server, whatever it says.
	// +kubebuilder:validation:Enum=none;client;server
	// +optional
	Validation string `json:"validation,omitempty"`

	// DriftDetection says what happens when applied objects are changed by others; they are corrected when unset.
	// +optional
	DriftDetection *meta.DriftDetection `json:"driftDetection,omitempty"`

	meta.Gated `json:",inline"`
}

// DependencyReference names a Kustomization to wait for.
type DependencyReference struct {
	meta.NamespacedName `json:",inline"`
}

// Decryption says how Secrets in the source are decrypted.
type Decryption struct {
	// +kubebuilder:validation:Enum=sops
	// +required
	Provider string `json:"provider"`
	// SecretRef names the Secret with the keys.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
}

// KubeConfigReference names the Secret with the kubeconfig of a remote cluster.
type KubeConfigReference struct {
	// +optional
	SecretRef meta.LocalObjectReference `json:"secretRef,omitempty"`
}

// PostBuild says what happens to the manifests after the build.
type PostBuild struct {
	// Substitute maps variables to values.
	// +optional
	Substitute map[string]string `json:"substitute,omitempty"`
	// SubstituteFrom lists ConfigMaps and Secrets whose data are variables; later ones win, substitute wins over all.
	// +optional
	SubstituteFrom []SubstituteReference `json:"substituteFrom,omitempty"`
}

// Patch is a strategic merge or JSON patch and the objects it applies to.
type Patch struct {
	// Patch in YAML.
	// +optional
	Patch string `json:"patch,omitempty"`
	// Target of the patch; what the patch names when unset.
	// +optional
	Target *meta.Selector `json:"target,omitempty"`
}

// SourceReference names the source.
type SourceReference struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:Enum=GitRepository;Bucket
	// +required
	Kind                string `json:"kind"`
	meta.NamespacedName `json:",inline"`
}

// SubstituteReference references a ConfigMap or Secret whose data are used as variables.
type SubstituteReference struct {
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	// +required
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// KustomizationStatus is what was observed of the Kustomization.
type KustomizationStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// LastAppliedRevision is the last revision that was applied to the end.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// LastAttemptedRevision is the last revision that was tried.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// Snapshot of what was applied, by kind.
	// +optional
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// Snapshot of what was applied, by kind.
type Snapshot struct {
	// Checksum of the manifests.
	// +required
	Checksum string `json:"checksum"`
	// +required
	Entries []SnapshotEntry `json:"entries"`
}

// SnapshotEntry lists the kinds applied in a namespace.
type SnapshotEntry struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Kinds maps group and kind to version.
	// +required
	Kinds map[string]string `json:"kinds"`
}

// Kustomization applies what is built from a source, and keeps it so.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ks
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type Kustomization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KustomizationSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status KustomizationStatus `json:"status,omitempty"`
}

// KustomizationList is a list of Kustomizations.
// +kubebuilder:object:root=true
type KustomizationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Kustomization `json:"items"`
}
