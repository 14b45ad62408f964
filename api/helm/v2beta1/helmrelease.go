package v2beta1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

// HelmReleaseSpec defines which chart is released, with which values, and how.
type HelmReleaseSpec struct {
	// Chart defines the source object of the chart, which is created for the release.
	// +required
	Chart HelmChartTemplate `json:"chart"`

	// ChartRef references an existing source object of the chart.
	// +optional
	ChartRef *helmv2.ChartReference `json:"chartRef,omitempty"`

	// Interval at which the release is compared with the spec.
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

	// DependsOn lists the HelmReleases that must be ready before this one is released.
	// +optional
	DependsOn []meta.DependencyReference `json:"dependsOn,omitempty"`

	// Timeout of each operation on the cluster, such as a hook or the wait for health. Defaults to 5m.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// MaxHistory is the number of revisions that Helm stores. Defaults to 5; 0 stores all.
	// +optional
	MaxHistory *int `json:"maxHistory,omitempty"`

	// ServiceAccountName is the ServiceAccount, in the namespace of the HelmRelease, that is impersonated.
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
	WaitStrategy *helmv2.WaitStrategy `json:"waitStrategy,omitempty"`

	// HealthCheckExprs are CEL expressions that determine the health of custom resources.
	// +optional
	HealthCheckExprs []meta.HealthCheckExpr `json:"healthCheckExprs,omitempty"`

	meta.Gated `json:",inline"`
}

// KubeConfigReference references the credentials of a remote cluster.
type KubeConfigReference struct {
	// ConfigMapRef references the ConfigMap that configures access by workload identity.
	// +optional
	ConfigMapRef *meta.LocalObjectReference `json:"configMapRef,omitempty"`
	// SecretRef references the Secret with the kubeconfig.
	// +optional
	SecretRef *meta.SecretKeyReference `json:"secretRef,omitempty"`
}

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
	// +optional
	Patch string `json:"patch,omitempty"`
	// Target of the patch. Defaults to the object that the patch names.
	// +optional
	Target *meta.Selector `json:"target,omitempty"`
}

// HelmRelease releases a Helm chart, and keeps the release as declared.
// +kubebuilder:object:root=true
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
	Status helmv2.HelmReleaseStatus `json:"status,omitempty"`
}

// HelmReleaseList is a list of HelmReleases.
// +kubebuilder:object:root=true
type HelmReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HelmRelease `json:"items"`
}
