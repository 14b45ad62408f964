package v2beta1

import (
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// HelmChartTemplate is a template of the source object that is created for the release.
type HelmChartTemplate struct {
	// Kind of the source object. Defaults to HelmChart.
	// +kubebuilder:validation:Enum=HelmChart;OCIRepository
	// +optional
	Kind string `json:"kind,omitempty"`

	// ObjectMeta of the source object.
	// +optional
	ObjectMeta *helmv2.HelmChartTemplateObjectMeta `json:"metadata,omitempty"`

	// Spec of the source object.
	// +required
	Spec HelmChartTemplateSpec `json:"spec"`
}

// HelmChartTemplateSpec is the spec of the source object: chart, version, sourceRef, reconcileStrategy and values
// files for a HelmChart; url, ref and the fields of a registry for an OCIRepository.
type HelmChartTemplateSpec struct {
	// Chart is the name of the chart in a HelmRepository, or its path in another source.
	// +required
	Chart string `json:"chart"`

	// Version range of the chart. Defaults to the latest version.
	// +kubebuilder:default=*
	// +optional
	Version string `json:"version,omitempty"`

	// SourceRef references the source of the chart.
	// +required
	SourceRef SourceReference `json:"sourceRef"`

	// Interval at which the source is checked. Defaults to the interval of the HelmRelease.
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// ReconcileStrategy defines what triggers a new chart: a new version (ChartVersion, the default), or any new
	// revision of the source (Revision).
	// +kubebuilder:validation:Enum=ChartVersion;Revision
	// +kubebuilder:default=ChartVersion
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
	// +optional
	Kind string `json:"kind,omitempty"`
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
