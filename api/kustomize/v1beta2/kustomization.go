package v1beta2

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// KustomizationSpec defines what is built from which source, and how it is applied.
type KustomizationSpec struct {
	// DependsOn lists the Kustomizations that must be ready before this one is applied.
	// +optional
	DependsOn []DependencyReference `json:"dependsOn,omitempty"`

	// Decryption of Secrets in the source.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// Interval at which the source is built and applied to the cluster.
	// +required
	Interval meta.Duration `json:"interval"`

	// RetryInterval after a failure. If unset, retries use exponential backoff up to the interval.
	// +optional
	RetryInterval *meta.Duration `json:"retryInterval,omitempty"`

	// KubeConfig of a remote cluster to apply to.
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`

	// Path of the directory in the source to build. Defaults to the root.
	// +optional
	Path string `json:"path,omitempty"`

	// PostBuild defines what happens to the manifests after the build.
	// +optional
	PostBuild *PostBuild `json:"postBuild,omitempty"`

	// Prune deletes objects that are no longer declared.
	// +required
	Prune bool `json:"prune"`

	// HealthChecks lists objects that must be healthy before the Kustomization is ready.
	// +optional
	HealthChecks []meta.ObjectReference `json:"healthChecks,omitempty"`

	// Patches to apply to the build, in strategic merge or JSON format.
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

	// ServiceAccountName is the ServiceAccount, in the namespace of the Kustomization, that is impersonated
	// when applying.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// SourceRef references the source.
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

	// Timeout of a reconcile, including its health checks. Defaults to the interval.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Force re-creates objects when an immutable field changes.
	// +kubebuilder:default=false
	// +optional
	Force bool `json:"force,omitempty"`

	// Wait for all applied objects to be healthy. If set, healthChecks is ignored.
	// +optional
	Wait bool `json:"wait,omitempty"`

	// Validation is accepted and ignored. Objects are always validated by a server-side dry run.
	// +kubebuilder:validation:Enum=none;client;server
	// +optional
	Validation string `json:"validation,omitempty"`

	// DriftDetection defines what happens when applied objects are changed by other clients. If unset, drift
	// is corrected.
	// +optional
	DriftDetection *meta.DriftDetection `json:"driftDetection,omitempty"`

	meta.Gated `json:",inline"`
}

// DependencyReference references a Kustomization that must be ready first.
type DependencyReference struct {
	meta.NamespacedName `json:",inline"`
}

// Decryption defines how Secrets in the source are decrypted.
type Decryption struct {
	// +kubebuilder:validation:Enum=sops
	// +required
	Provider string `json:"provider"`
	// SecretRef references the Secret with the keys.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
}

// KubeConfigReference references the Secret with the kubeconfig of a remote cluster.
type KubeConfigReference struct {
	// +optional
	SecretRef meta.SecretKeyReference `json:"secretRef,omitempty"`
}

// PostBuild defines what happens to the manifests after the build.
type PostBuild struct {
	// Substitute maps variables to values.
	// +optional
	Substitute map[string]string `json:"substitute,omitempty"`
	// SubstituteFrom lists ConfigMaps and Secrets whose data are used as variables. Later entries take
	// precedence, and substitute takes precedence over all.
	// +optional
	SubstituteFrom []meta.SubstituteReference `json:"substituteFrom,omitempty"`
}

// Patch is a strategic merge or JSON patch and the objects that it applies to.
type Patch struct {
	// Patch in YAML.
	// +optional
	Patch string `json:"patch,omitempty"`
	// Target of the patch. Defaults to the object that the patch names.
	// +optional
	Target *meta.Selector `json:"target,omitempty"`
}

// SourceReference references the source.
type SourceReference struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:Enum=OCIRepository;GitRepository;Bucket
	// +required
	Kind                string `json:"kind"`
	meta.NamespacedName `json:",inline"`
}

// KustomizationStatus is what was observed of the Kustomization.
type KustomizationStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// LastAppliedRevision is the last revision that was applied completely.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// LastAttemptedRevision is the revision of the last attempt to apply.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// Inventory of the applied objects.
	// +optional
	Inventory *meta.ResourceInventory `json:"inventory,omitempty"`
}

// Kustomization applies the manifests that are built from a source, and corrects drift.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ks,categories=all;fluxcd;fluxcd-appliers
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
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
