package v1

import (
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Kinds of this group.
const (
	ResourceSetKind              = "ResourceSet"
	ResourceSetInputProviderKind = "ResourceSetInputProvider"
)

// Labels of the objects that a ResourceSet applied.
const (
	OwnerNameLabel      = "resourceset.fluxcd.controlplane.io/name"
	OwnerNamespaceLabel = "resourceset.fluxcd.controlplane.io/namespace"
)

// Annotations of rendered objects.
const (
	PruneAnnotation                 = "fluxcd.controlplane.io/prune"
	ForceAnnotation                 = "fluxcd.controlplane.io/force"
	RecreateOnFailureAnnotation     = "fluxcd.controlplane.io/recreateOnFailure"
	CopyFromAnnotation              = "fluxcd.controlplane.io/copyFrom"
	ConvertKubeConfigFromAnnotation = "fluxcd.controlplane.io/convertKubeConfigFrom"
	ChecksumFromAnnotation          = "fluxcd.controlplane.io/checksumFrom"
	ChecksumAnnotation              = "fluxcd.controlplane.io/checksum"
)

// Strategies to combine the inputs of several providers.
const (
	InputStrategyFlatten = "Flatten"
	InputStrategyPermute = "Permute"
)

// ResourceSetSpec defines templates of objects and the inputs that they are rendered with.
// +kubebuilder:validation:XValidation:message="steps cannot be combined with resources or resourcesTemplate",
// +> rule="!has(self.steps) || (!has(self.resources) && !has(self.resourcesTemplate))"
// +kubebuilder:validation:XValidation:message="one of steps, resources or resourcesTemplate must be set",
// +> rule="has(self.steps) || has(self.resources) || has(self.resourcesTemplate)"
type ResourceSetSpec struct {
	// CommonMetadata is set on every object. It takes precedence over labels and annotations of the templates.
	// +optional
	CommonMetadata *meta.CommonMetadata `json:"commonMetadata,omitempty"`

	// Inputs are sets of values. The templates are rendered once with each set.
	// +optional
	Inputs []InputSet `json:"inputs,omitempty"`

	// InputsFrom selects the providers of further inputs, in the namespace of the ResourceSet.
	// +optional
	InputsFrom []InputProviderReference `json:"inputsFrom,omitempty"`

	// InputStrategy defines how the inputs of several providers are combined. Defaults to Flatten.
	// +optional
	InputStrategy *InputStrategy `json:"inputStrategy,omitempty"`

	// Resources are templates of objects.
	// +kubebuilder:validation:items:Type=object
	// +optional
	Resources []apiextensionsv1.JSON `json:"resources,omitempty"`

	// ResourcesTemplate is a template of YAML documents.
	// +optional
	ResourcesTemplate string `json:"resourcesTemplate,omitempty"`

	// Steps are applied in order. The objects of a step must be healthy before the next step is applied.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:message="the names of steps must be unique",rule="self.all(s,
	// +>  self.exists_one(t, t.name == s.name))"
	// +optional
	Steps []ResourceSetStep `json:"steps,omitempty"`

	// DependsOn lists objects of any kind that must exist, or be ready, before the ResourceSet is applied.
	// +optional
	DependsOn []meta.DependencyReference `json:"dependsOn,omitempty"`

	// ServiceAccountName is the ServiceAccount, in the namespace of the ResourceSet, that is impersonated when
	// applying.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Wait for all applied objects to be healthy.
	// +optional
	Wait bool `json:"wait,omitempty"`

	meta.Gated `json:",inline"`
}

// InputProviderReference selects providers of inputs by name or by label.
// +kubebuilder:validation:XValidation:message="name or selector must be set",rule="has(self.name) ||
// +>  has(self.selector)"
// +kubebuilder:validation:XValidation:message="name and selector cannot both be set",rule="!has(self.name) ||
// +>  !has(self.selector)"
type InputProviderReference struct {
	// +kubebuilder:validation:Enum=fluxcd.controlplane.io/v1;inputs.toolkit.fluxcd.io/v1alpha1
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the provider. Defaults to ResourceSetInputProvider.
	// +kubebuilder:validation:Enum=ResourceSetInputProvider;ClusterInputProvider
	// +optional
	Kind string `json:"kind,omitempty"`

	// Name of the provider.
	// +optional
	Name string `json:"name,omitempty"`

	// Selector of providers by label.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// InputStrategy defines how the inputs of several providers are combined.
// +kubebuilder:validation:XValidation:message="includeEmptyProviders needs the strategy Permute",
// +> rule="!has(self.includeEmptyProviders) || self.name == 'Permute'"
type InputStrategy struct {
	// Name of the strategy. Flatten concatenates the inputs; Permute combines each input of a provider with each
	// input of the other providers.
	// +kubebuilder:validation:Enum=Flatten;Permute
	// +required
	Name string `json:"name"`

	// IncludeEmptyProviders makes a provider without inputs count for Permute, so that nothing is rendered.
	// +optional
	IncludeEmptyProviders bool `json:"includeEmptyProviders,omitempty"`
}

// ResourceSetStep is a group of objects that are applied together.
// +kubebuilder:validation:XValidation:message="resources or resourcesTemplate must be set",
// +> rule="has(self.resources) || has(self.resourcesTemplate)"
type ResourceSetStep struct {
	// Name of the step.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// Resources are templates of objects.
	// +kubebuilder:validation:items:Type=object
	// +optional
	Resources []apiextensionsv1.JSON `json:"resources,omitempty"`

	// ResourcesTemplate is a template of YAML documents.
	// +optional
	ResourcesTemplate string `json:"resourcesTemplate,omitempty"`

	// Timeout of the health checks of the step. Defaults to the timeout of the ResourceSet.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`
}

// HistoryEntry is a build and how it was reconciled.
type HistoryEntry struct {
	meta.Reconciliation `json:",inline"`
}

// ResourceSetStatus is what was observed of the ResourceSet.
type ResourceSetStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// LastAppliedRevision is the digest of the objects that were applied last.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// ExternalChecksumRefs are the ConfigMaps and Secrets, as Kind/namespace/name, that the annotation checksumFrom
	// names and the ResourceSet does not contain.
	// +optional
	ExternalChecksumRefs []string `json:"externalChecksumRefs,omitempty"`

	// History of the last builds, newest first.
	// +optional
	History []HistoryEntry `json:"history,omitempty"`

	// Inventory of the applied objects.
	// +optional
	Inventory *meta.ResourceInventory `json:"inventory,omitempty"`
}

// ResourceSet applies the objects that are rendered from templates with sets of inputs, and corrects drift.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rset,categories=all;fluxcd;fluxcd-appliers
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type ResourceSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceSetSpec   `json:"spec,omitempty"`
	Status ResourceSetStatus `json:"status,omitempty"`
}

// ResourceSetList is a list of ResourceSets.
// +kubebuilder:object:root=true
type ResourceSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceSet `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (s *ResourceSet) CommonStatus() *meta.Status { return &s.Status.Status }

// GateRefs returns the gates that the object references.
func (s *ResourceSet) GateRefs() []meta.GateReference { return s.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (s *ResourceSet) Held() *meta.Held { return &s.Status.Held }

// Schedule returns the schedule that the annotations set.
func (s *ResourceSet) Schedule() meta.Schedule {
	return scheduleOf(s.Annotations, time.Hour, 5*time.Minute)
}
