package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// HelmChartKind is the kind's name.
const HelmChartKind = "HelmChart"

// Values of spec.reconcileStrategy: what triggers a new package of a chart.
const (
	ReconcileStrategyChartVersion = "ChartVersion"
	ReconcileStrategyRevision     = "Revision"
)

// HelmChartSpec defines which chart is fetched from which source.
// +kubebuilder:validation:XValidation:message="spec.verify is only supported when spec.sourceRef.kind is
// +>  'HelmRepository'",rule="!has(self.verify) || self.sourceRef.kind == 'HelmRepository'"
type HelmChartSpec struct {
	// Chart is the name of the chart in a HelmRepository, or its path in another source.
	// +required
	Chart string `json:"chart"`

	// Version range of the chart. The highest matching version is used. For HelmRepository only.
	// +kubebuilder:default:=*
	// +optional
	Version string `json:"version,omitempty"`

	// SourceRef references the source of the chart, in the same namespace.
	// +required
	SourceRef LocalHelmChartSourceReference `json:"sourceRef"`

	// Interval at which the source is checked for a new chart.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// ReconcileStrategy defines what triggers a new artifact: a new version in Chart.yaml (ChartVersion), or
	// any new revision of the source (Revision).
	// +kubebuilder:validation:Enum=ChartVersion;Revision
	// +kubebuilder:default:=ChartVersion
	// +optional
	ReconcileStrategy string `json:"reconcileStrategy,omitempty"`

	// ValuesFiles replace values.yaml. They are merged in order, and later files take precedence. Paths are
	// relative to the root of the source or, for a HelmRepository, to the chart. A file of another source of the
	// namespace is KIND://NAME/PATH, for example GitRepository://site/values/prod.yaml.
	// +optional
	ValuesFiles []string `json:"valuesFiles,omitempty"`

	// IgnoreMissingValuesFiles ignores values files that do not exist.
	// +optional
	IgnoreMissingValuesFiles bool `json:"ignoreMissingValuesFiles,omitempty"`

	// Suspend stops reconciling. The last artifact is still served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Verify defines who must have signed the chart. If unset, signatures are not verified.
	// +optional
	Verify *Verification `json:"verify,omitempty"`

	// ValuesFile is a single values file, for manifests of v1beta1 and v1beta2. It is merged before ValuesFiles.
	// Deprecated.
	// +optional
	ValuesFile string `json:"valuesFile,omitempty"`

	// AccessFrom is accepted for manifests of v1beta1 and v1beta2.
	// Deprecated.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	meta.Gated `json:",inline"`
}

// LocalHelmChartSourceReference references the source of a chart.
type LocalHelmChartSourceReference struct {
	// APIVersion of the source. If unset, it is derived from the kind.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the source.
	// +kubebuilder:validation:Enum=HelmRepository;GitRepository;Bucket
	// +required
	Kind string `json:"kind"`

	// Name of the source.
	// +required
	Name string `json:"name"`
}

// HelmChartStatus is what was observed of the chart.
type HelmChartStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// URL of the latest artifact.
	// +optional
	URL string `json:"url,omitempty"`

	// Artifact of the last fetched or packaged chart.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// ObservedSourceArtifactRevision is the revision of the source that the chart was last taken from.
	// +optional
	ObservedSourceArtifactRevision string `json:"observedSourceArtifactRevision,omitempty"`

	// ObservedChartName is the name of the chart of the artifact.
	// +optional
	ObservedChartName string `json:"observedChartName,omitempty"`

	// ObservedValuesFiles are the values files that the artifact was built with, without missing files that
	// were ignored.
	// +optional
	ObservedValuesFiles []string `json:"observedValuesFiles,omitempty"`
}

// HelmChart makes a Helm chart of a source available as an artifact.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hc,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="Chart",type=string,JSONPath=`.spec.chart`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Source Kind",type=string,JSONPath=`.spec.sourceRef.kind`
// +kubebuilder:printcolumn:name="Source Name",type=string,JSONPath=`.spec.sourceRef.name`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type HelmChart struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HelmChartSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status HelmChartStatus `json:"status,omitempty"`
}

// HelmChartList is a list of charts.
// +kubebuilder:object:root=true
type HelmChartList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HelmChart `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (c *HelmChart) CommonStatus() *meta.Status { return &c.Status.Status }

// GateRefs returns the gates that the object references.
func (c *HelmChart) GateRefs() []meta.GateReference { return c.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (c *HelmChart) Held() *meta.Held { return &c.Status.Held }

// GetArtifact returns the last artifact; nil if there is none.
func (c *HelmChart) GetArtifact() *meta.Artifact { return c.Status.Artifact }

// SetArtifact sets the last artifact, and the URL of the newest artifact.
func (c *HelmChart) SetArtifact(a *meta.Artifact) {
	c.Status.Artifact, c.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the chart is reconciled.
func (c *HelmChart) Schedule() meta.Schedule { return schedule(c.Spec.Interval, nil, c.Spec.Suspend) }

// GetValuesFiles returns the values files in order, with spec.valuesFile first.
func (c *HelmChart) GetValuesFiles() []string {
	if c.Spec.ValuesFile == "" {
		return c.Spec.ValuesFiles
	}
	return append([]string{c.Spec.ValuesFile}, c.Spec.ValuesFiles...)
}
