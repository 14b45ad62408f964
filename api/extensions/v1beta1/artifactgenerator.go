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

// Annotations of a managed Namespace. PruneAnnotation with the value Disabled keeps it from being deleted.
// SSAAnnotation with the value Ignore keeps it from being changed and deleted, and with IfNotPresent from being
// changed.
// ReconcileAnnotation with the value Disabled does the same as Ignore. Values are case-insensitive.
// ExternalFinalizerAnnotation names an object, as group/version/kind/namespace/name/uid, that deletes the Namespace in
// place of the generator while it exists.
const (
	PruneAnnotation             = "source.extensions.fluxcd.io/prune"
	PruneDisabled               = "Disabled"
	SSAAnnotation               = "source.extensions.fluxcd.io/ssa"
	SSAIgnore                   = "Ignore"
	SSAIfNotPresent             = "IfNotPresent"
	ExternalFinalizerAnnotation = "source.extensions.fluxcd.io/externalFinalizer"
)

// NamespaceMetadataKind is the kind of the files of managedNamespaces.metadata.fromSource. The API server does
// not know it.
const NamespaceMetadataKind = "NamespaceMetadata"

// Strategies of managedNamespaces.metadata.from.
const (
	MetadataReset    = "Reset"
	MetadataOverride = "Override"
	MetadataMerge    = "Merge"
)

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
// +>  a.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') && a.name.size() <= 253)"
// +kubebuilder:validation:XValidation:message="the namespace of an artifact must be a valid name, unless pathPattern
// +>  makes it a template",rule="has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a,
// +>  !has(a.__namespace__) || (a.__namespace__.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') &&
// +>  a.__namespace__.size() <= 63))"
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

	// ServiceAccountName is the ServiceAccount, in the namespace of the generator, that is impersonated to write
	// the ExternalArtifacts and the managed Namespaces. It must be allowed to. If unset,
	// --default-service-account is impersonated for other namespaces.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// ManagedNamespaces makes the generator create the Namespaces of the artifacts in other namespaces, and define
	// their labels and annotations.
	// +optional
	ManagedNamespaces *ManagedNamespaces `json:"managedNamespaces,omitempty"`

	meta.Gated `json:",inline"`
}

// CommonMetadata holds labels and annotations.
type CommonMetadata struct {
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// ManagedNamespaces defines which Namespaces the generator manages, and how.
type ManagedNamespaces struct {
	// AllowedNames are CEL expressions over ns, the name of a Namespace, such as ns.startsWith('tenant-'). One
	// must be true for each Namespace.
	// +kubebuilder:validation:MinItems=1
	// +required
	AllowedNames []string `json:"allowedNames"`

	// Metadata defines labels and annotations of the Namespaces, after commonMetadata.
	// +optional
	Metadata *NamespaceMetadata `json:"metadata,omitempty"`

	// Prune makes the generator delete the Namespaces that it manages, with all their content, when no artifact is
	// in them any more or the generator is deleted.
	// +required
	Prune bool `json:"prune"`
}

// NamespaceMetadata defines labels and annotations of managed Namespaces. FromSource is applied before From.
// +kubebuilder:validation:XValidation:message="fromSource or from must be set",rule="has(self.fromSource) ||
// +>  (has(self.from) && size(self.from) > 0)"
type NamespaceMetadata struct {
	// FromSource reads labels and annotations from a file.
	// +optional
	FromSource *NamespaceMetadataFile `json:"fromSource,omitempty"`

	// From is a list of changes that are applied in order.
	// +optional
	From []NamespaceMetadataChange `json:"from,omitempty"`
}

// NamespaceMetadataFile is a file of the kind NamespaceMetadata in a source. Keys that are not allowed are ignored.
// +kubebuilder:validation:XValidation:message="allowedAnnotations or allowedLabels must be set",
// +> rule="(has(self.allowedAnnotations) && size(self.allowedAnnotations) > 0) || (has(self.allowedLabels) &&
// +>  size(self.allowedLabels) > 0)"
type NamespaceMetadataFile struct {
	// Path of the file, as @alias/<path>.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Path string `json:"path"`

	// AllowedAnnotations are the annotations that the file may set, with the regular expression that the value
	// must match.
	// +optional
	AllowedAnnotations map[string]string `json:"allowedAnnotations,omitempty"`

	// AllowedLabels are the labels that the file may set, with the regular expression that the value must match.
	// +optional
	AllowedLabels map[string]string `json:"allowedLabels,omitempty"`
}

// NamespaceMetadataChange changes labels and annotations of one Namespace, or of all.
type NamespaceMetadataChange struct {
	// Namespace is the name of a Namespace, or * for all.
	// +kubebuilder:validation:Pattern="^(\\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$"
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`

	// Strategy of the change. Reset removes all other labels and annotations, Override replaces values, and Merge
	// adds what is missing.
	// +kubebuilder:validation:Enum=Reset;Override;Merge
	// +required
	Strategy string `json:"strategy"`

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
	// Name of the ExternalArtifact. With pathPattern, it may contain captures.
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Name string `json:"name"`

	// Namespace of the ExternalArtifact. Defaults to the namespace of the generator. With pathPattern, it may contain
	// captures. Another namespace needs a ServiceAccount that may write there.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// InputsFrom is a YAML file, as @alias/<path> or @artifact/<path>, whose mapping is exported in
	// status.exportedInputs of the ExternalArtifact.
	// +kubebuilder:validation:Pattern="^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	InputsFrom string `json:"inputsFrom,omitempty"`

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
	// +kubebuilder:validation:Pattern="^@artifact/([^/]{0,1}|[^./][^/]|[.][^./]|[^/]{3,})(/([^/]{0,1}|[^./][^/]|
	// +> [.][^./]|[^/]{3,}))*$"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	To string `json:"to"`

	// Exclude lists glob patterns of files that are not copied.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	Exclude []string `json:"exclude,omitempty"`

	// Strategy of the copy. Overwrite replaces existing files, Merge merges YAML files, and Extract unpacks
	// archives. Defaults to Overwrite.
	// +kubebuilder:validation:Enum=Overwrite;Merge;Extract
	// +optional
	Strategy string `json:"strategy,omitempty"`

	// Optional skips the copy if nothing matches From, which is otherwise an error.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// ArtifactGeneratorStatus is what was observed of the generator.
type ArtifactGeneratorStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// ObservedSourcesDigest is a digest of the revisions of all sources.
	// +optional
	ObservedSourcesDigest string `json:"observedSourcesDigest,omitempty"`

	// Inventory of the generated ExternalArtifacts and the managed Namespaces.
	// +optional
	Inventory []InventoryEntry `json:"inventory,omitempty"`
}

// InventoryEntry identifies an object of the generator and its content.
type InventoryEntry struct {
	// Kind of the object. Empty, as written by earlier versions, is an ExternalArtifact.
	// +kubebuilder:validation:Enum=ExternalArtifact;Namespace
	// +optional
	Kind string `json:"kind,omitempty"`

	// Name of the object.
	// +required
	Name string `json:"name"`

	// Namespace of the ExternalArtifact.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Digest of the artifact, or of the labels and annotations of the Namespace.
	// +required
	Digest string `json:"digest"`

	// Filename of the artifact in the artifact store.
	// +optional
	Filename string `json:"filename,omitempty"`
}

// ArtifactGenerator generates ExternalArtifacts from the content of sources. Use it to combine sources, or to
// split a monorepo.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ag,categories=all;fluxcd;fluxcd-sources
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
