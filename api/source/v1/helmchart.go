package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// HelmChartKind is the kind's name.
const HelmChartKind = "HelmChart"

// Strategies of when a chart is packaged anew.
const (
	ReconcileStrategyChartVersion = "ChartVersion"
	ReconcileStrategyRevision     = "Revision"
)

// HelmChartSpec says which chart of which source counts.
// +kubebuilder:validation:XValidation:message="spec.verify is only supported when spec.sourceRef.kind is
// +>  'HelmRepository'",rule="!has(self.verify) || self.sourceRef.kind == 'HelmRepository'"
type HelmChartSpec struct {
	// Chart is the name in the HelmRepository, or the path in the other sources.
	// +required
	Chart string `json:"chart"`

	// Version range of the chart, highest first; for HelmRepository only.
	// +kubebuilder:default:=*
	// +optional
	Version string `json:"version,omitempty"`

	// SourceRef names the source of the chart, in the same namespace.
	// +required
	SourceRef LocalHelmChartSourceReference `json:"sourceRef"`

	// Interval at which the source is asked for a new chart.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// ReconcileStrategy says what makes a new artifact: a new version in Chart.yaml, or any new revision of the source.
	// +kubebuilder:validation:Enum=ChartVersion;Revision
	// +kubebuilder:default:=ChartVersion
	// +optional
	ReconcileStrategy string `json:"reconcileStrategy,omitempty"`

	// ValuesFiles are merged, later ones win, and replace values.yaml; paths relative to the source's root,
	// or to the chart when the source is a HelmRepository.
	// +optional
	ValuesFiles []string `json:"valuesFiles,omitempty"`

	// IgnoreMissingValuesFiles tolerates values files that are not there.
	// +optional
	IgnoreMissingValuesFiles bool `json:"ignoreMissingValuesFiles,omitempty"`

	// Suspend stops reconciling; the last artifact keeps being served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Verify says by whom the chart must be signed; nothing is verified when unset.
	// +optional
	Verify *Verification `json:"verify,omitempty"`

	// ValuesFile is the one values file of manifests of v1beta1 and v1beta2; it comes before ValuesFiles.
	// Deprecated.
	// +optional
	ValuesFile string `json:"valuesFile,omitempty"`

	// AccessFrom is kept for manifests of v1beta1 and v1beta2.
	// Deprecated.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	meta.Gated `json:",inline"`
}

// LocalHelmChartSourceReference names the source of a chart.
type LocalHelmChartSourceReference struct {
	// APIVersion of the source; understood from the kind when unset.
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

	// Artifact of the last chart that was fetched or packaged.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// ObservedSourceArtifactRevision is the revision of the source that the chart was last taken from.
	// +optional
	ObservedSourceArtifactRevision string `json:"observedSourceArtifactRevision,omitempty"`

	// ObservedChartName is the name of the chart of the artifact.
	// +optional
	ObservedChartName string `json:"observedChartName,omitempty"`

	// ObservedValuesFiles are the values files of the artifact, without those that were missing and ignored.
	// +optional
	ObservedValuesFiles []string `json:"observedValuesFiles,omitempty"`
}

// HelmChart keeps an artifact of a Helm chart of a source.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hc
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

// GateRefs returns the gates that the object names.
func (c *HelmChart) GateRefs() []meta.GateReference { return c.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (c *HelmChart) Held() *meta.Held { return &c.Status.Held }

// GetArtifact returns the last artifact; nil when there is none.
func (c *HelmChart) GetArtifact() *meta.Artifact { return c.Status.Artifact }

// SetArtifact sets the last artifact, and where the newest is served.
func (c *HelmChart) SetArtifact(a *meta.Artifact) {
	c.Status.Artifact, c.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the chart is reconciled.
func (c *HelmChart) Schedule() meta.Schedule { return schedule(c.Spec.Interval, nil, c.Spec.Suspend) }

// GetValuesFiles returns the values files in order, with the one of older versions first.
func (c *HelmChart) GetValuesFiles() []string {
	if c.Spec.ValuesFile == "" {
		return c.Spec.ValuesFiles
	}
	return append([]string{c.Spec.ValuesFile}, c.Spec.ValuesFiles...)
}
