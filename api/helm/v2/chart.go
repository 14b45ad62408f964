package v2

import (
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// HelmChartTemplate is a template of the source object that is created for the release.
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' || (has(self.spec.url) &&
// +>  size(self.spec.url) > 0)",message="spec.url is required if kind is 'OCIRepository'"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.url) || (has(self.kind) && self.kind ==
// +>  'OCIRepository')",message="spec.url is only supported if kind is 'OCIRepository'"
// +kubebuilder:validation:XValidation:rule="(has(self.kind) && self.kind == 'OCIRepository') || (has(self.spec.chart)
// +>  && has(self.spec.sourceRef))",message="spec.chart and spec.sourceRef are required if kind is 'HelmChart'"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' ||
// +>  !has(self.spec.chart)",message="spec.chart is not supported if kind is 'OCIRepository'"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' || !has(self.spec.version)
// +>  || self.spec.version == '*'",message="spec.version is not supported if kind is 'OCIRepository'; set spec.ref"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' ||
// +>  !has(self.spec.sourceRef)",message="spec.sourceRef is not supported if kind is 'OCIRepository'"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' ||
// +>  !has(self.spec.reconcileStrategy) || self.spec.reconcileStrategy ==
// +>  'ChartVersion'",message="spec.reconcileStrategy is not supported if kind is 'OCIRepository'"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' ||
// +>  !has(self.spec.valuesFiles)",message="spec.valuesFiles is not supported if kind is 'OCIRepository'"
// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind != 'OCIRepository' ||
// +>  !has(self.spec.ignoreMissingValuesFiles)",message="spec.ignoreMissingValuesFiles is not supported if kind is
// +>  'OCIRepository'"
type HelmChartTemplate struct {
	// Kind of the source object. Defaults to HelmChart.
	// +kubebuilder:validation:Enum=HelmChart;OCIRepository
	// +optional
	Kind string `json:"kind,omitempty"`

	// ObjectMeta of the source object.
	// +optional
	ObjectMeta *HelmChartTemplateObjectMeta `json:"metadata,omitempty"`

	// Spec of the source object.
	// +required
	Spec HelmChartTemplateSpec `json:"spec"`
}

// GetKind returns the kind of the source object.
func (t *HelmChartTemplate) GetKind() string {
	if t.Kind == "" {
		return sourcev1.HelmChartKind
	}
	return t.Kind
}

// HelmChartTemplateObjectMeta is set on the source object.
type HelmChartTemplateObjectMeta struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// HelmChartTemplateSpec is the spec of the source object: chart, version, sourceRef, reconcileStrategy and values
// files for a HelmChart; url, ref and the fields of a registry for an OCIRepository.
type HelmChartTemplateSpec struct {
	// Chart is the name of the chart in a HelmRepository, or its path in another source.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Chart string `json:"chart,omitempty"`

	// Version range of the chart. Defaults to the latest version.
	// +optional
	Version string `json:"version,omitempty"`

	// SourceRef references the source of the chart.
	// +optional
	SourceRef *SourceReference `json:"sourceRef,omitempty"`

	// Interval at which the source is checked. Defaults to the interval of the HelmRelease.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// ReconcileStrategy defines what triggers a new chart: a new version (ChartVersion, the default), or any new
	// revision of the source (Revision).
	// +kubebuilder:validation:Enum=ChartVersion;Revision
	// +optional
	ReconcileStrategy string `json:"reconcileStrategy,omitempty"`

	// ValuesFiles replace values.yaml of the chart. Later files take precedence.
	// +optional
	ValuesFiles []string `json:"valuesFiles,omitempty"`

	// ValuesFile is merged before valuesFiles.
	// Deprecated: use valuesFiles.
	// +optional
	ValuesFile string `json:"valuesFile,omitempty"`

	// IgnoreMissingValuesFiles ignores values files that do not exist.
	// +optional
	IgnoreMissingValuesFiles bool `json:"ignoreMissingValuesFiles,omitempty"`

	// Verify defines who must have signed the chart. If unset, signatures are not verified.
	// +optional
	Verify *sourcev1.Verification `json:"verify,omitempty"`

	// URL of the chart in a registry, as oci://host/path.
	// +kubebuilder:validation:Pattern="^oci://.*$"
	// +optional
	URL string `json:"url,omitempty"`

	// Reference defines which revision of the chart in a registry is fetched.
	// +optional
	Reference *sourcev1.OCIRepositoryRef `json:"ref,omitempty"`

	// LayerSelector defines which layer is the chart. Defaults to the layer with a chart, copied.
	// +optional
	LayerSelector *sourcev1.OCILayerSelector `json:"layerSelector,omitempty"`

	// Provider of the registry whose authentication is used.
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +optional
	Provider string `json:"provider,omitempty"`

	// SecretRef references the Secret with the credentials of the registry.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName is the ServiceAccount whose pull secrets or identity are used with the registry.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef references the Secret with the certificates of the registry.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef references the Secret with the proxy to the registry.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Timeout of one fetch from the registry.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Ignore holds rules in .gitignore syntax.
	// +optional
	Ignore *string `json:"ignore,omitempty"`

	// Insecure connects to the registry over plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Suspend stops reconciling the OCIRepository.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// SourceReference references the source of a chart.
type SourceReference struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:Enum=HelmRepository;GitRepository;Bucket
	// +required
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Namespace of the source. Defaults to the namespace of the HelmRelease.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ChartReference references the source object of the chart.
type ChartReference struct {
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:Enum=OCIRepository;HelmChart;ExternalArtifact
	// +required
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Namespace of the object. Defaults to the namespace of the HelmRelease.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}
