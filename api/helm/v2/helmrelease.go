package v2

import (
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// HelmReleaseKind is the kind's name.
const HelmReleaseKind = "HelmRelease"

// Annotations that request an action once. A request is handled if its value equals that of
// [meta.ReconcileRequestAnnotation] and differs from the last handled value, which is in the status.
const (
	ForceRequestAnnotation = "reconcile.fluxcd.io/forceAt" // install or upgrade the release, even without a change
	ResetRequestAnnotation = "reconcile.fluxcd.io/resetAt" // reset the failure counters
)

// DriftDetectionAnnotation with the value disabled excludes an object from drift detection.
const DriftDetectionAnnotation = "helm.toolkit.fluxcd.io/driftDetection"

// defaultTimeout of the operations of a release.
const defaultTimeout = 5 * time.Minute

// HelmReleaseSpec defines which chart is released, with which values, and how.
// +kubebuilder:validation:XValidation:rule="(has(self.chart) && !has(self.chartRef)) || (!has(self.chart) &&
// +>  has(self.chartRef))",message="either chart or chartRef must be set"
type HelmReleaseSpec struct {
	// Chart defines the source object of the chart, which is created for the release.
	// +optional
	Chart *HelmChartTemplate `json:"chart,omitempty"`

	// ChartRef references an existing source object of the chart.
	// +optional
	ChartRef *ChartReference `json:"chartRef,omitempty"`

	// Interval at which the release is compared with the spec.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// KubeConfig of a remote cluster to release to.
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`

	// Suspend stops reconciling.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// ReleaseName is the name of the Helm release. Defaults to the name of the HelmRelease, with the target
	// namespace as a prefix if one is set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +optional
	ReleaseName string `json:"releaseName,omitempty"`

	// TargetNamespace is the namespace of the Helm release. Defaults to the namespace of the HelmRelease.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// StorageNamespace is the namespace in which Helm stores the release. Defaults to the namespace of the
	// HelmRelease.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	StorageNamespace string `json:"storageNamespace,omitempty"`

	// DependsOn lists objects that must be ready, or exist, before this HelmRelease is released.
	// +optional
	DependsOn []meta.DependencyReference `json:"dependsOn,omitempty"`

	// Timeout of each operation on the cluster, such as a hook or the wait for health. Defaults to 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// MaxHistory is the number of revisions that Helm stores. Defaults to 5; 0 stores all.
	// +optional
	MaxHistory *int `json:"maxHistory,omitempty"`

	// ServiceAccountName is the ServiceAccount, in the namespace of the HelmRelease, that is impersonated.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// PersistentClient is accepted for manifests that set it. Definitions that a chart creates are always known
	// to the rest of the operation.
	// +optional
	PersistentClient *bool `json:"persistentClient,omitempty"`

	// DriftDetection defines what happens when released objects are changed by other clients. If unset, drift is
	// not detected.
	// +optional
	DriftDetection *meta.DriftDetection `json:"driftDetection,omitempty"`

	// Install configures installs.
	// +optional
	Install *Install `json:"install,omitempty"`

	// Upgrade configures upgrades.
	// +optional
	Upgrade *Upgrade `json:"upgrade,omitempty"`

	// Test configures the tests that run after an install and an upgrade.
	// +optional
	Test *Test `json:"test,omitempty"`

	// Rollback configures rollbacks.
	// +optional
	Rollback *Rollback `json:"rollback,omitempty"`

	// Uninstall configures uninstalls.
	// +optional
	Uninstall *Uninstall `json:"uninstall,omitempty"`

	// ValuesFrom lists ConfigMaps and Secrets with values. Later entries take precedence, and values takes
	// precedence over all.
	// +optional
	ValuesFrom []meta.ValuesReference `json:"valuesFrom,omitempty"`

	// Decryption of the files of sources in valuesFrom.
	// +optional
	Decryption *meta.Decryption `json:"decryption,omitempty"`

	// Values of the release.
	// +optional
	Values *apiextensionsv1.JSON `json:"values,omitempty"`

	// CommonMetadata is set on every object, hooks and CRDs excepted.
	// +optional
	CommonMetadata *meta.CommonMetadata `json:"commonMetadata,omitempty"`

	// PostRenderers change the rendered manifests, in order.
	// +optional
	PostRenderers []PostRenderer `json:"postRenderers,omitempty"`

	// PostRenderStrategy defines whether hooks are post-rendered: nohooks leaves them unchanged, combined renders
	// them together with the other objects, separate renders each template by itself.
	// +kubebuilder:validation:Enum=nohooks;combined;separate
	// +optional
	PostRenderStrategy string `json:"postRenderStrategy,omitempty"`

	// WaitStrategy defines how the health of objects is determined.
	// +optional
	WaitStrategy *WaitStrategy `json:"waitStrategy,omitempty"`

	// HealthCheckExprs are CEL expressions that determine the health of custom resources.
	// +optional
	HealthCheckExprs []meta.HealthCheckExpr `json:"healthCheckExprs,omitempty"`

	meta.Gated `json:",inline"`
}

// KubeConfigReference references the credentials of a remote cluster.
type KubeConfigReference = meta.KubeConfigReference

// PostRenderer changes the rendered manifests.
type PostRenderer struct {
	// +optional
	Kustomize *Kustomize `json:"kustomize,omitempty"`
}

// Kustomize changes manifests as kustomize does.
type Kustomize struct {
	// Patches in strategic merge or JSON format.
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

// Wait strategies.
const (
	WaitStrategyPoller = "poller" // health as Kustomizations determine it, custom resources included
	WaitStrategyLegacy = "legacy" // health as Helm 3 determined it: workloads and volumes only
)

// WaitStrategy defines how the health of objects is determined.
type WaitStrategy struct {
	// Name of the strategy: poller determines the health of all objects as Kustomizations do, legacy that of
	// workloads only, as Helm 3 did.
	// +kubebuilder:validation:Enum=poller;legacy
	// +required
	Name string `json:"name"`
}

// HelmRelease releases a Helm chart, and keeps the release as declared.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hr,categories=all;fluxcd;fluxcd-appliers
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type HelmRelease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HelmReleaseSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status HelmReleaseStatus `json:"status,omitempty"`
}

// HelmReleaseList is a list of HelmReleases.
// +kubebuilder:object:root=true
type HelmReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HelmRelease `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (r *HelmRelease) CommonStatus() *meta.Status { return &r.Status.Status }

// GateRefs returns the gates that the object references.
func (r *HelmRelease) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *HelmRelease) Held() *meta.Held { return &r.Status.Held }

// DeploysTo returns the cluster that the HelmRelease deploys to.
func (r *HelmRelease) DeploysTo() meta.ClusterRef {
	c := r.Spec.KubeConfig
	switch {
	case c != nil && c.SecretRef != nil:
		return meta.ClusterRef{Secret: c.SecretRef.Name}
	case c != nil && c.ConfigMapRef != nil:
		return meta.ClusterRef{ConfigMap: c.ConfigMapRef.Name}
	default:
		return meta.ClusterRef{}
	}
}

// GetTimeout returns the timeout of an operation: its own if one is set, else that of the spec.
func (r *HelmRelease) GetTimeout(own *meta.Duration) time.Duration {
	for _, d := range []*meta.Duration{own, r.Spec.Timeout} {
		if d != nil {
			return d.Duration
		}
	}
	return defaultTimeout
}

// Schedule returns when and for how long the HelmRelease is reconciled. A pass may install or upgrade, test and
// remediate; each of these runs several operations with a timeout of their own, such as hooks and a wait.
func (r *HelmRelease) Schedule() meta.Schedule {
	release := max(r.GetTimeout(r.Spec.Install.timeout()), r.GetTimeout(r.Spec.Upgrade.timeout()))
	remediation := max(r.GetTimeout(r.Spec.Rollback.timeout()), r.GetTimeout(r.Spec.Uninstall.timeout()))
	return meta.Schedule{
		Interval:  r.Spec.Interval.Duration,
		Timeout:   operationsOfAction * (release + r.GetTimeout(r.Spec.Test.timeout()) + remediation),
		Suspended: r.Spec.Suspend,
	}
}

// operationsOfAction is the number of operations of an action: hooks before and after, definitions, and a wait.
const operationsOfAction = 4

// DriftMode returns the mode of drift detection; disabled if the spec does not set one.
func (r *HelmRelease) DriftMode() string {
	if d := r.Spec.DriftDetection; d != nil && d.Mode != "" {
		return d.Mode
	}
	return meta.DriftDisabled
}

// GetReleaseNamespace returns the namespace of the Helm release.
func (r *HelmRelease) GetReleaseNamespace() string {
	if r.Spec.TargetNamespace != "" {
		return r.Spec.TargetNamespace
	}
	return r.Namespace
}

// GetStorageNamespace returns the namespace in which Helm stores the release.
func (r *HelmRelease) GetStorageNamespace() string {
	if r.Spec.StorageNamespace != "" {
		return r.Spec.StorageNamespace
	}
	return r.Namespace
}

// GetMaxHistory returns the number of revisions that Helm stores; 0 for all.
func (r *HelmRelease) GetMaxHistory() int {
	if r.Spec.MaxHistory != nil {
		return *r.Spec.MaxHistory
	}
	return 5
}
