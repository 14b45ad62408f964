package v1beta1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ArtifactGeneratorKind is the kind's name.
const ArtifactGeneratorKind = "ArtifactGenerator"

// ReconcileAnnotation with the value ReconcileDisabled, in whatever case, suspends a generator, and
// ReconcileEveryAnnotation says how often it is reconciled although nothing moved; the kind has no fields for
// these.
const (
	ReconcileAnnotation      = "source.extensions.fluxcd.io/reconcile"
	ReconcileDisabled        = "disabled"
	ReconcileEveryAnnotation = "source.extensions.fluxcd.io/reconcileEvery"
	DefaultReconcileEvery    = time.Hour
)

// ArtifactGeneratorFinalizer is the one that generators have always carried, so that they move between installations.
const ArtifactGeneratorFinalizer = "source.extensions.fluxcd.io/finalizer"

// GeneratorLabel of an ExternalArtifact holds the UID of the generator that makes it.
const GeneratorLabel = "source.extensions.fluxcd.io/generator"

// Reasons of generators that fail.
const (
	SourceFetchFailedReason = "SourceFetchFailed"
	ValidationFailedReason  = "ValidationFailed"
)

// Strategies of copying over what is there.
const (
	CopyOverwrite = "Overwrite"
	CopyMerge     = "Merge"
	CopyExtract   = "Extract"
)

// ArtifactGeneratorSpec says which artifacts are made of which sources.
// +kubebuilder:validation:XValidation:message="the name of an artifact must be that of an object, unless pathPattern
// +>  makes it a template",rule="has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a,
// +>  a.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))"
type ArtifactGeneratorSpec struct {
	// CommonMetadata is put on every ExternalArtifact that is made.
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// Sources that artifacts are made of.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +required
	Sources []SourceReference `json:"sources"`

	// PathPattern, as @alias/<glob>, finds directories of a source; the artifacts are made once for each.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	PathPattern string `json:"pathPattern,omitempty"`

	// Artifacts to make.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +required
	Artifacts []OutputArtifact `json:"artifacts"`

	meta.Gated `json:",inline"`
}

// CommonMetadata is labels and annotations.
type CommonMetadata struct {
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// SourceReference names a source, and gives it a short name for the copy operations.
type SourceReference struct {
	// Alias is the name that copy operations use, unique in the generator.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	// +required
	Alias string `json:"alias"`

	// Kind of the source.
	// +kubebuilder:validation:Enum=Bucket;GitRepository;OCIRepository;HelmChart;ExternalArtifact
	// +required
	Kind string `json:"kind"`

	// Name of the source.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the source; the generator's own when unset.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// OutputArtifact says what one artifact is made of.
type OutputArtifact struct {
	// Name of the ExternalArtifact.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Revision is the source, as @alias, whose revision the artifact carries; made of the content when unset.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Revision string `json:"revision,omitempty"`

	// OriginRevision is the source, as @alias, whose origin revision the artifact carries in its metadata.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	OriginRevision string `json:"originRevision,omitempty"`

	// Copy lists what is copied, in order.
	// +kubebuilder:validation:MinItems=1
	// +required
	Copy []CopyOperation `json:"copy"`
}

// CopyOperation copies files of a source into the artifact.
type CopyOperation struct {
	// From is what is copied, as @alias/<path or glob>.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	From string `json:"from"`

	// To is where it is copied to, as @artifact/<path>.
	// +kubebuilder:validation:Pattern="^@(artifact)/(.*)$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	To string `json:"to"`

	// Exclude lists globs of what is not copied.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Exclude []string `json:"exclude,omitempty"`

	// Strategy for what is there already: Overwrite replaces files, Merge merges YAML; Extract unpacks
	// archives. Overwrite when unset.
	// +kubebuilder:validation:Enum=Overwrite;Merge;Extract
	// +optional
	Strategy string `json:"strategy,omitempty"`
}

// ArtifactGeneratorStatus is what was observed of the generator.
type ArtifactGeneratorStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// ObservedSourcesDigest is a digest of the revisions of all sources.
	// +optional
	ObservedSourcesDigest string `json:"observedSourcesDigest,omitempty"`

	// Inventory of the ExternalArtifacts that were made.
	// +optional
	Inventory []ExternalArtifactReference `json:"inventory,omitempty"`
}

// ExternalArtifactReference names an ExternalArtifact and its content.
type ExternalArtifactReference struct {
	// Name of the ExternalArtifact.
	// +required
	Name string `json:"name"`

	// Namespace of the ExternalArtifact.
	// +required
	Namespace string `json:"namespace"`

	// Digest of the artifact.
	// +required
	Digest string `json:"digest"`

	// Filename of the artifact in the store.
	// +required
	Filename string `json:"filename"`
}

// ArtifactGenerator makes ExternalArtifacts of the content of sources, so that sources are composed, and a
// monorepo is split.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ag
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type ArtifactGenerator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ArtifactGeneratorSpec   `json:"spec,omitempty"`
	Status ArtifactGeneratorStatus `json:"status,omitempty"`
}

// ArtifactGeneratorList is a list of generators.
// +kubebuilder:object:root=true
type ArtifactGeneratorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ArtifactGenerator `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (g *ArtifactGenerator) CommonStatus() *meta.Status { return &g.Status.Status }

// GateRefs returns the gates that the object names.
func (g *ArtifactGenerator) GateRefs() []meta.GateReference { return g.Spec.Gates }

// Held returns the part of the status that tells which gates stand over the object.
func (g *ArtifactGenerator) Held() *meta.Held { return &g.Status.Held }

// Schedule returns the schedule, which annotations hold. Sources wake the generator whatever the interval is.
func (g *ArtifactGenerator) Schedule() meta.Schedule {
	interval, err := time.ParseDuration(g.Annotations[ReconcileEveryAnnotation])
	if err != nil || interval <= 0 {
		interval = DefaultReconcileEvery
	}
	return meta.Schedule{
		Interval:  interval,
		Suspended: strings.EqualFold(g.Annotations[ReconcileAnnotation], ReconcileDisabled),
	}
}
