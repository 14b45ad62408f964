package v1beta1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ArtifactGeneratorKind is the kind's name.
const ArtifactGeneratorKind = "ArtifactGenerator"

// ReconcileAnnotation with the value ReconcileDisabled (case-insensitive) suspends a generator.
// ReconcileEveryAnnotation sets the interval at which it is reconciled when no source changes. The kind has
// no fields for these.
const (
	ReconcileAnnotation      = "source.extensions.fluxcd.io/reconcile"
	ReconcileDisabled        = "disabled"
	ReconcileEveryAnnotation = "source.extensions.fluxcd.io/reconcileEvery"
	DefaultReconcileEvery    = time.Hour
)

// ArtifactGeneratorFinalizer is the finalizer of generators. Its name must not change, so that generators can
// be moved between installations.
const ArtifactGeneratorFinalizer = "source.extensions.fluxcd.io/finalizer"

// GeneratorLabel is the label of an ExternalArtifact that holds the UID of the generator that created it.
const GeneratorLabel = "source.extensions.fluxcd.io/generator"

// Condition reasons of failed generators.
const (
	SourceFetchFailedReason = "SourceFetchFailed"
	ValidationFailedReason  = "ValidationFailed"
)

// Strategies for copying to a path that already exists.
const (
	CopyOverwrite = "Overwrite"
	CopyMerge     = "Merge"
	CopyExtract   = "Extract"
)

// ArtifactGeneratorSpec defines the artifacts to generate and the sources they are built from.
// +kubebuilder:validation:XValidation:message="the name of an artifact must be that of an object, unless pathPattern
// +>  makes it a template",rule="has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a,
// +>  a.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))"
type ArtifactGeneratorSpec struct {
	// CommonMetadata is set on every generated ExternalArtifact.
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// Sources that the artifacts are built from.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +required
	Sources []SourceReference `json:"sources"`

	// PathPattern selects directories of a source, in the form @alias/<glob>. The artifacts are generated
	// once for each matching directory.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	PathPattern string `json:"pathPattern,omitempty"`

	// Artifacts to generate.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +required
	Artifacts []OutputArtifact `json:"artifacts"`

	meta.Gated `json:",inline"`
}

// CommonMetadata holds labels and annotations.
type CommonMetadata struct {
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// SourceReference references a source and gives it an alias for use in copy operations.
type SourceReference struct {
	// Alias of the source in copy operations. It must be unique within the generator.
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

	// Namespace of the source. Defaults to the namespace of the generator.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// OutputArtifact defines the content of one artifact.
type OutputArtifact struct {
	// Name of the ExternalArtifact.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Revision is the source, as @alias, whose revision is used as the revision of the artifact. If unset,
	// the revision is computed from the content.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Revision string `json:"revision,omitempty"`

	// OriginRevision is the source, as @alias, whose origin revision is added to the metadata of the artifact.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$"
	// +kubebuilder:validation:MaxLength=64
	// +optional
	OriginRevision string `json:"originRevision,omitempty"`

	// Copy lists the copy operations, which run in order.
	// +kubebuilder:validation:MinItems=1
	// +required
	Copy []CopyOperation `json:"copy"`
}

// CopyOperation copies files from a source to the artifact.
type CopyOperation struct {
	// From is the source path, as @alias/<path or glob>.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	From string `json:"from"`

	// To is the destination path, as @artifact/<path>.
	// +kubebuilder:validation:Pattern="^@(artifact)/(.*)$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	To string `json:"to"`

	// Exclude lists glob patterns of files that are not copied.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Exclude []string `json:"exclude,omitempty"`

	// Strategy of the copy. Overwrite replaces existing files, Merge merges YAML files, and Extract unpacks
	// archives. Defaults to Overwrite.
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

	// Inventory of the generated ExternalArtifacts.
	// +optional
	Inventory []ExternalArtifactReference `json:"inventory,omitempty"`
}

// ExternalArtifactReference identifies an ExternalArtifact and its content.
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

	// Filename of the artifact in the artifact store.
	// +required
	Filename string `json:"filename"`
}

// ArtifactGenerator generates ExternalArtifacts from the content of sources. Use it to combine sources, or to
// split a monorepo.
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

// GateRefs returns the gates that the object references.
func (g *ArtifactGenerator) GateRefs() []meta.GateReference { return g.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (g *ArtifactGenerator) Held() *meta.Held { return &g.Status.Held }

// Schedule returns the schedule that the annotations set. A change of a source also triggers a reconcile,
// independently of the interval.
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
