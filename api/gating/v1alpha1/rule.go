package v1alpha1

// Outcome is what a rule does with a change.
// +kubebuilder:validation:Enum=pass;deny;approvals
type Outcome string

// Outcomes of a rule.
const (
	OutcomePass      Outcome = "pass"      // the change passes, even if the gate is closed
	OutcomeDeny      Outcome = "deny"      // the change does not pass, even if the gate is open
	OutcomeApprovals Outcome = "approvals" // the change passes once enough users approved it
)

// Rule decides about changes by their content.
// +kubebuilder:validation:XValidation:rule="(self.outcome == 'approvals') == has(self.approvals)",message="approvals
// +>  must be set if the outcome is approvals, and only then"
type Rule struct {
	// Name of the rule, for messages.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// Expression in CEL. Its variables are change, and object, which is the object that asks.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +required
	Expression string `json:"expression"`

	// Outcome if the expression is true.
	// +required
	Outcome Outcome `json:"outcome"`

	// Approvals that the change requires, as GateApproval objects that name it.
	// +optional
	Approvals *Approvals `json:"approvals,omitempty"`

	// Message for people whose change does not pass.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}
