package meta

// GateReference references a Gate.
type GateReference struct {
	// Name of the Gate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the Gate. Defaults to the namespace of the referencing object.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Gated is the part of the spec that objects have in common to which gates can apply.
type Gated struct {
	// Gates that must all be open before a change is applied. Gates that select the object apply in addition.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Gates []GateReference `json:"gates,omitempty"`
}

// Held is the part of the status that objects have in common to which gates can apply. Only the reconcile
// kernel writes it.
type Held struct {
	// Gates that apply to the object, as <namespace>/<name>: those it references and those that select it.
	// The conditions of the object name the closed gates.
	// +optional
	Gates []string `json:"gates,omitempty"`

	// HeldBy are the gates that hold the pending change, at most 100 of them.
	// +optional
	HeldBy []HoldingGate `json:"heldBy,omitempty"`

	// Pending is the change that waits for a gate to open; unset if no change waits.
	// +optional
	Pending *Pending `json:"pending,omitempty"`

	// Admitted is the last revision that the object was updated to, or began to be updated to, with the consent of
	// the gates. Its seal proves that a controller wrote it.
	// +optional
	Admitted *Admitted `json:"admitted,omitempty"`

	// Reverted is set while the object has an earlier revision than its source on purpose: a gate with spec.onFailure
	// Revert made it go back. Only Kustomizations and HelmReleases go back.
	// +optional
	Reverted *Reverted `json:"reverted,omitempty"`

	// Previous is what the object was healthy with before, and can go back to. It is set behind gates with
	// spec.onFailure Revert.
	// +optional
	Previous *Previous `json:"previous,omitempty"`
}

// Previous is what an object was healthy with before.
type Previous struct {
	// Revision that is stored.
	// +required
	Revision string `json:"revision"`

	// Generation of the object at that time. A Kustomization with another spec does not go back.
	// +required
	Generation int64 `json:"generation"`

	// Release is the version of the Helm release.
	// +optional
	Release int `json:"release,omitempty"`
}

// HoldingGate is a gate that holds a change.
type HoldingGate struct {
	// Gate as <namespace>/<name>.
	// +required
	Gate string `json:"gate"`

	// Code identifies why the gate holds the change, such as Closed or DeniedByRule.
	// +required
	Code string `json:"code"`

	// Rule of the gate that holds the change; unset if no rule does.
	// +optional
	Rule string `json:"rule,omitempty"`

	// Message says why rules, waves or a refusal for this object hold the change; unset if the gate holds all changes.
	// +optional
	Message string `json:"message,omitempty"`
}

// Admitted is a revision that the gates let through.
type Admitted struct {
	// Revision that the gates let through.
	// +required
	Revision string `json:"revision"`

	// Generation of the object at that time.
	// +required
	Generation int64 `json:"generation"`

	// Change identifies what the gates let through if the revision does not: other values of a release, or another
	// spec. It is only set if a gate has spec.onFailure, as are the next two.
	// +optional
	Change string `json:"change,omitempty"`

	// Decided is a keyed digest of all that rules of gates let through.
	// +optional
	Decided string `json:"decided,omitempty"`

	// ReadyAt is the time at which the object was first Ready with the revision.
	// +optional
	ReadyAt *Time `json:"readyAt,omitempty"`

	// Failure is set while the object is unhealthy with the revision.
	// +optional
	Failure *AdmittedFailure `json:"failure,omitempty"`

	// Seal is a message authentication code of all this and of status.reverted, with a key of the controllers.
	// +required
	Seal string `json:"seal"`
}

// AdmittedFailure is how an object became unhealthy after gates let a change through.
type AdmittedFailure struct {
	// At is the time at which the object became unhealthy.
	// +required
	At Time `json:"at"`

	// Message is the cause.
	// +required
	Message string `json:"message"`
}

// Reverted is how an object went back to an earlier revision.
type Reverted struct {
	// From is the revision that failed, or that a person refused.
	// +required
	From string `json:"from"`

	// Change identifies what failed if the revision does not.
	// +optional
	Change string `json:"change,omitempty"`

	// To is the revision that the object has now.
	// +required
	To string `json:"to"`

	// Gate that made the object go back, as <namespace>/<name>.
	// +required
	Gate string `json:"gate"`

	// Since is the time at which it went back.
	// +required
	Since Time `json:"since"`

	// Reason is why: the object that failed first, and its cause, or who asked for it and why.
	// +required
	Reason string `json:"reason"`

	// By is who made the object go back; empty if a failure did.
	// +optional
	By string `json:"by,omitempty"`
}

// Pending is a change that waits for a gate to open.
type Pending struct {
	// Revision that the object would be updated to.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Since is the time at which it started to wait.
	// +optional
	Since *Time `json:"since,omitempty"`

	// Created is the number of objects that would be created.
	// +optional
	Created int32 `json:"created,omitempty"`

	// Configured is the number of objects that would be changed.
	// +optional
	Configured int32 `json:"configured,omitempty"`

	// Deleted is the number of objects that would be deleted.
	// +optional
	Deleted int32 `json:"deleted,omitempty"`

	// Changes lists the first of these objects, as <kind>/<namespace>/<name> <action>.
	// +optional
	Changes []string `json:"changes,omitempty"`

	// Diff is what would change in objects that exist, with secrets masked. It is shortened.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Diff string `json:"diff,omitempty"`

	// Images that the change would bring, the first of them.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Images []string `json:"images,omitempty"`

	// Risk of the change: low, medium or high.
	// +optional
	Risk string `json:"risk,omitempty"`

	// Change identifies the content of the change. Approvals that the rules of a gate require name it.
	// +optional
	Change string `json:"change,omitempty"`

	// Message explains why the changes could not be determined, if they could not.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterRef identifies the cluster that an object deploys to: the cluster of the kubeconfig in a Secret, the
// cluster that a ConfigMap describes or, if both are empty, the cluster of the object itself.
// +kubebuilder:object:generate=false
type ClusterRef struct{ Secret, ConfigMap string }
