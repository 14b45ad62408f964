package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// GateApprovalKind is the kind's name.
const GateApprovalKind = "GateApproval"

// GateApprovalSpec is the approval of one user. It is immutable, except that it can be withdrawn.
// +kubebuilder:validation:XValidation:rule="self.gateRef == oldSelf.gateRef && self.user == oldSelf.user",message="an
// +>  approval cannot be changed: withdraw it and make another"
// +kubebuilder:validation:XValidation:rule="has(self.groups) == has(oldSelf.groups) && (!has(self.groups) ||
// +>  self.groups == oldSelf.groups)",message="an approval cannot be changed: withdraw it and make another"
// +kubebuilder:validation:XValidation:rule="has(self.revision) == has(oldSelf.revision) && (!has(self.revision) ||
// +>  self.revision == oldSelf.revision)",message="an approval cannot be changed: withdraw it and make another"
// +kubebuilder:validation:XValidation:rule="has(self.changes) == has(oldSelf.changes) && (!has(self.changes) ||
// +>  self.changes == oldSelf.changes)",message="an approval cannot be changed: withdraw it and make another"
// +kubebuilder:validation:XValidation:rule="has(self.expiresAt) == has(oldSelf.expiresAt) && (!has(self.expiresAt) ||
// +>  self.expiresAt == oldSelf.expiresAt)",message="an approval cannot be changed: withdraw it and make another"
// +kubebuilder:validation:XValidation:rule="has(self.comment) == has(oldSelf.comment) && (!has(self.comment) ||
// +>  self.comment == oldSelf.comment)",message="an approval cannot be changed: withdraw it and make another"
// +kubebuilder:validation:XValidation:rule="!(has(oldSelf.withdrawn) && oldSelf.withdrawn) || has(self.withdrawn) &&
// +>  self.withdrawn",message="an approval that was withdrawn stays so: make another"
type GateApprovalSpec struct {
	// GateRef references the gate, in the namespace of the approval.
	// +required
	GateRef meta.LocalObjectReference `json:"gateRef"`

	// User who approves. The API server rejects any name except that of the user who creates the approval.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	User string `json:"user"`

	// Groups on whose behalf the user approves. The API server rejects groups that the user is not a member of.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	Groups []string `json:"groups,omitempty"`

	// Revision that is approved. If unset, the approval is for any revision.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Revision string `json:"revision,omitempty"`

	// Changes that are approved for the rules of the gate, as status.pending.change of the waiting objects. An
	// approval that names changes, but no revision, is for these changes only.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=100
	// +optional
	Changes []string `json:"changes,omitempty"`

	// ExpiresAt is the time at which the approval expires.
	// +optional
	ExpiresAt *meta.Time `json:"expiresAt,omitempty"`

	// Comment on the approval.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Comment string `json:"comment,omitempty"`

	// Withdrawn permanently withdraws the approval.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// GateApproval is the approval of one user for a gate to open.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:shortName=approval
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Gate",type="string",JSONPath=".spec.gateRef.name",description=""
// +kubebuilder:printcolumn:name="User",type="string",JSONPath=".spec.user",description=""
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".spec.revision",description=""
// +kubebuilder:printcolumn:name="Expires",type="string",JSONPath=".spec.expiresAt",description=""
// +kubebuilder:printcolumn:name="Withdrawn",type="boolean",JSONPath=".spec.withdrawn",description=""
type GateApproval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec GateApprovalSpec `json:"spec"`
}

// GateApprovalList is a list of approvals.
// +kubebuilder:object:root=true
type GateApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GateApproval `json:"items"`
}
