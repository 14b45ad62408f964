package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ExternalArtifactKind is the kind's name.
const ExternalArtifactKind = "ExternalArtifact"

// ExternalArtifactSpec defines the origin of the artifact.
type ExternalArtifactSpec struct {
	// SourceRef references the object that the artifact is built from.
	// +optional
	SourceRef *meta.ObjectReference `json:"sourceRef,omitempty"`
}

// ExternalArtifactStatus is what was observed of the artifact.
type ExternalArtifactStatus struct {
	meta.Status `json:",inline"`

	// Artifact of the last published revision.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// ExportedInputs are values that the publisher of the artifact exports, in any form.
	// +optional
	ExportedInputs map[string]apiextensionsv1.JSON `json:"exportedInputs,omitempty"`
}

// ExternalArtifact holds an artifact that another controller builds and publishes.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ea,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.sourceRef.name`
type ExternalArtifact struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExternalArtifactSpec   `json:"spec,omitempty"`
	Status ExternalArtifactStatus `json:"status,omitempty"`
}

// ExternalArtifactList is a list of artifacts.
// +kubebuilder:object:root=true
type ExternalArtifactList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalArtifact `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (a *ExternalArtifact) CommonStatus() *meta.Status { return &a.Status.Status }

// GetArtifact returns the last artifact; nil if there is none.
func (a *ExternalArtifact) GetArtifact() *meta.Artifact { return a.Status.Artifact }

// SetArtifact sets the last artifact.
func (a *ExternalArtifact) SetArtifact(artifact *meta.Artifact) { a.Status.Artifact = artifact }

// Schedule returns an empty schedule: only the controller that publishes the artifact triggers a reconcile.
func (a *ExternalArtifact) Schedule() meta.Schedule { return meta.Schedule{} }
