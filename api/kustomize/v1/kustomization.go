package v1

import (
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// KustomizationKind is the kind's name.
const KustomizationKind = "Kustomization"

// AllowEmptyAnnotation names the revision of the source whose build may be empty, so that all objects are pruned.
const AllowEmptyAnnotation = "kustomize.toolkit.fluxcd.io/allow-empty"

// Deletion policies.
const (
	DeletionPolicyMirrorPrune        = "MirrorPrune"
	DeletionPolicyDelete             = "Delete"
	DeletionPolicyWaitForTermination = "WaitForTermination"
	DeletionPolicyOrphan             = "Orphan"
)

// Substitute strategies.
const (
	SubstituteStrategyWithVariables = "WithVariables"
	SubstituteStrategyAlways        = "Always"
)

// KustomizationSpec defines what is built from which source, and how it is applied.
type KustomizationSpec struct {
	// DependsOn lists objects that must be ready, or exist, before this Kustomization is applied.
	// +optional
	DependsOn []DependencyReference `json:"dependsOn,omitempty"`

	// Decryption of Secrets in the source.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// Interval at which the source is built and applied to the cluster.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	Interval meta.Duration `json:"interval"`

	// RetryInterval after a failure. If unset, retries use exponential backoff up to the interval.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
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
	// Deprecated: use patches.
	// +optional
	PatchesStrategicMerge []apiextensionsv1.JSON `json:"patchesStrategicMerge,omitempty"`

	// PatchesJSON6902 are JSON patches.
	// Deprecated: use patches.
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
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Force re-creates objects when an immutable field changes.
	// +kubebuilder:default=false
	// +optional
	Force bool `json:"force,omitempty"`

	// Wait for all applied objects to be healthy. If set, healthChecks is ignored.
	// +optional
	Wait bool `json:"wait,omitempty"`

	// Validation is accepted and ignored. Objects are always validated by a server-side dry run.
	// Deprecated.
	// +kubebuilder:validation:Enum=none;client;server
	// +optional
	Validation string `json:"validation,omitempty"`

	// CommonMetadata is set on every object.
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// DeletionPolicy defines what happens to the applied objects when the Kustomization is deleted.
	// +kubebuilder:validation:Enum=MirrorPrune;Delete;WaitForTermination;Orphan
	// +optional
	DeletionPolicy string `json:"deletionPolicy,omitempty"`

	// NamePrefix of every object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +optional
	NamePrefix string `json:"namePrefix,omitempty"`

	// NameSuffix of every object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +optional
	NameSuffix string `json:"nameSuffix,omitempty"`

	// HealthCheckExprs are CEL expressions that determine the health of custom resources.
	// +optional
	HealthCheckExprs []HealthCheckExpr `json:"healthCheckExprs,omitempty"`

	// Components are paths of kustomize components to add.
	// +optional
	Components []string `json:"components,omitempty"`

	// IgnoreMissingComponents ignores components that do not exist.
	// +optional
	IgnoreMissingComponents bool `json:"ignoreMissingComponents,omitempty"`

	// BuildMetadata adds the metadata that kustomize has about the origin of an object to the object.
	// +optional
	BuildMetadata []BuildMetadataOption `json:"buildMetadata,omitempty"`

	// Ignore lists fields whose drift is not corrected.
	// +optional
	Ignore []meta.IgnoreRule `json:"ignore,omitempty"`

	// DriftDetection defines what happens when applied objects are changed by other clients. If unset, drift
	// is corrected.
	// +optional
	DriftDetection *meta.DriftDetection `json:"driftDetection,omitempty"`

	meta.Gated `json:",inline"`
}

// Types shared by the kinds that deploy objects.
type (
	// DependencyReference references an object that must be ready, or exist, first.
	DependencyReference = meta.DependencyReference
	// Decryption defines how files of the source are decrypted.
	Decryption = meta.Decryption
	// KubeConfigReference references the credentials of a remote cluster.
	KubeConfigReference = meta.KubeConfigReference
	// CommonMetadata is set on every object.
	CommonMetadata = meta.CommonMetadata
	// HealthCheckExpr defines the health of the objects of a kind.
	HealthCheckExpr = meta.HealthCheckExpr
)

// PostBuild defines what happens to the manifests after the build.
type PostBuild struct {
	// Substitute maps variables to values.
	// +optional
	Substitute map[string]string `json:"substitute,omitempty"`
	// SubstituteFrom lists ConfigMaps and Secrets whose data are used as variables. Later entries take
	// precedence, and substitute takes precedence over all.
	// +optional
	SubstituteFrom []meta.SubstituteReference `json:"substituteFrom,omitempty"`
	// SubstituteStrategy defines whether variables in manifests are substituted even if no variable is defined.
	// +kubebuilder:validation:Enum=WithVariables;Always
	// +optional
	SubstituteStrategy string `json:"substituteStrategy,omitempty"`
}

// Patch is a strategic merge or JSON patch and the objects that it applies to.
type Patch struct {
	// Patch in YAML.
	// +required
	Patch string `json:"patch"`
	// Target of the patch. Defaults to the object that the patch names.
	// +optional
	Target *meta.Selector `json:"target,omitempty"`
}

// SourceReference references the source.
type SourceReference struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:Enum=OCIRepository;GitRepository;Bucket;ExternalArtifact
	// +required
	Kind                string `json:"kind"`
	meta.NamespacedName `json:",inline"`
}

// BuildMetadataOption is a kind of metadata that kustomize adds.
// +kubebuilder:validation:Enum=originAnnotations;transformerAnnotations
type BuildMetadataOption string

// Snapshot is one entry of the history: a build and how it was reconciled.
type Snapshot struct {
	meta.Reconciliation `json:",inline"`

	// Times of the steps of the last pass that built and applied it.
	// +optional
	Times *StepTimes `json:"times,omitempty"`
	// Live is a digest of the live objects as they were applied, by which a controller that starts recognizes that they
	// did not change.
	// +optional
	Live string `json:"live,omitempty"`
}

// StepTimes are when the steps of a pass began and ended.
type StepTimes struct {
	// Started is when the build began.
	// +required
	Started meta.Time `json:"started"`
	// Built is when the build ended and the apply began.
	// +required
	Built meta.Time `json:"built"`
	// Applied is when all objects were applied. It is unset if that failed.
	// +optional
	Applied *meta.Time `json:"applied,omitempty"`
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

	// LastAppliedOriginRevision is the origin revision of the last applied artifact.
	// +optional
	LastAppliedOriginRevision string `json:"lastAppliedOriginRevision,omitempty"`

	// History of the last builds, newest first.
	// +optional
	History []Snapshot `json:"history,omitempty"`

	// Inventory of the applied objects.
	// +optional
	Inventory *meta.ResourceInventory `json:"inventory,omitempty"`
}

// Kustomization applies the manifests that are built from a source, and corrects drift.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

// CommonStatus returns the part of the status that the kernel writes.
func (k *Kustomization) CommonStatus() *meta.Status { return &k.Status.Status }

// GateRefs returns the gates that the object references.
func (k *Kustomization) GateRefs() []meta.GateReference { return k.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (k *Kustomization) Held() *meta.Held { return &k.Status.Held }

// DeploysTo returns the cluster that the Kustomization applies to.
func (k *Kustomization) DeploysTo() meta.ClusterRef {
	c := k.Spec.KubeConfig
	switch {
	case c != nil && c.SecretRef != nil:
		return meta.ClusterRef{Secret: c.SecretRef.Name}
	case c != nil && c.ConfigMapRef != nil:
		return meta.ClusterRef{ConfigMap: c.ConfigMapRef.Name}
	default:
		return meta.ClusterRef{}
	}
}

// MinTimeout is the shortest time of a reconcile and its health checks: a shorter spec.timeout counts as this. Only
// tests change it.
var MinTimeout = 30 * time.Second

// Schedule returns when and for how long the Kustomization is reconciled.
func (k *Kustomization) Schedule() meta.Schedule {
	s := meta.Schedule{Interval: k.Spec.Interval.Duration, Timeout: k.Spec.Interval.Duration, Suspended: k.Spec.Suspend}
	if k.Spec.Timeout != nil {
		s.Timeout = k.Spec.Timeout.Duration
	}
	s.Timeout = max(s.Timeout, MinTimeout)
	if k.Spec.RetryInterval != nil {
		s.RetryInterval = k.Spec.RetryInterval.Duration
	}
	return s
}

// DriftMode returns the mode of drift detection; enabled if the spec does not set one.
func (k *Kustomization) DriftMode() string {
	if d := k.Spec.DriftDetection; d != nil && d.Mode != "" {
		return d.Mode
	}
	return meta.DriftEnabled
}
