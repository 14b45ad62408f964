package v1alpha1

import (
	"github.com/sluice-gitops/sluice/api/meta"
)

// Maximum lengths of the lists in the status of a gate.
const (
	MaxWaiting   = 100 // listed objects; waitingCount counts all
	MaxHistory   = 50  // transitions, newest first
	MaxApprovals = 100
)

// Reasons of status.why and of the history, which explain the state of the gate.
const (
	WhyDefault          = "Default"          // nothing else determines the state
	WhyRequested        = "Requested"        // a user or a tool requested it
	WhyScheduled        = "Scheduled"        // a schedule entry is in effect
	WhyApproved         = "Approved"         // it has the required approvals
	WhyOverridden       = "Overridden"       // an override request is in effect
	WhyApprovalRequired = "ApprovalRequired" // approvals are missing
	WhyCheckFailed      = "CheckFailed"      // a check does not pass, or not for long enough yet
	WhyRevisionFailed   = "RevisionFailed"   // a change that the gate let through is unhealthy
)

// Condition reasons of gates that are closed because they cannot be evaluated.
const (
	InvalidRequestReason   = "InvalidRequest"  // an annotation is invalid, or two contradict each other
	InvalidWindowReason    = "InvalidWindow"   // spec.window is invalid
	InvalidScheduleReason  = "InvalidSchedule" // spec.schedule is invalid
	InvalidCheckReason     = "InvalidCheck"    // spec.checks is invalid
	InvalidRuleReason      = "InvalidRule"     // spec.rules is invalid
	InvalidWavesReason     = "InvalidWaves"    // spec.waves is invalid, or divides too many objects
	CheckCycleReason       = "CheckCycle"      // the gate waits for itself through the checks of other gates
	PolicyMissingReason    = "PolicyMissing"   // the API server does not verify the authors of approvals
	CheckFailedReason      = WhyCheckFailed    // a check does not hold
	ApprovalRequiredReason = WhyApprovalRequired
	RevisionFailedReason   = WhyRevisionFailed // see spec.onFailure
)

// GateStatus is what was observed of the gate.
type GateStatus struct {
	meta.Status `json:",inline"`

	// RequestedAt is the time of the last request that took effect.
	// +optional
	RequestedAt *meta.Time `json:"requestedAt,omitempty"`

	// ResetToDefaultAt is the time at which that request ends or ended.
	// +optional
	ResetToDefaultAt *meta.Time `json:"resetToDefaultAt,omitempty"`

	// NextTransition is the next change of the gate that is known in advance.
	// +optional
	NextTransition *Transition `json:"nextTransition,omitempty"`

	// Why the gate is in its current state.
	// +optional
	Why *Explanation `json:"why,omitempty"`

	// ApprovedRevisions are the only revisions that the open gate allows. If empty, all revisions are allowed.
	// +optional
	ApprovedRevisions []string `json:"approvedRevisions,omitempty"`

	// Approvals that exist for the gate, and whether they count.
	// +optional
	Approvals []ObservedApproval `json:"approvals,omitempty"`

	// ApprovedChanges are the changes that have the approvals which a rule requires.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	ApprovedChanges []ApprovedChange `json:"approvedChanges,omitempty"`

	// Checks and their results.
	// +listType=map
	// +listMapKey=name
	// +optional
	Checks []CheckResult `json:"checks,omitempty"`

	// Failures are changes that the gate let through and that became unhealthy, newest first. The gate is closed while
	// one of them is not resolved; with spec.onFailure Revert, it refuses each of them until it is approved.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Failures []FailedChange `json:"failures,omitempty"`

	// HandledRefusal is the time of the last request to refuse a revision that was handled, as the annotation has it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	HandledRefusal string `json:"handledRefusal,omitempty"`

	// Waves is how far the newest revision of each source has come through spec.waves.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Waves []WaveProgress `json:"waves,omitempty"`

	// WaitingCount is the number of objects that wait for the gate to open.
	// +optional
	WaitingCount int64 `json:"waitingCount,omitempty"`

	// Waiting lists the first 100 waiting objects.
	// +optional
	Waiting []WaitingObject `json:"waiting,omitempty"`

	// History of the transitions of the gate, newest first.
	// +optional
	History []HistoryEntry `json:"history,omitempty"`

	// Seal proves that a controller wrote the state of the gate. A gate without a valid seal is closed.
	// +optional
	Seal *Seal `json:"seal,omitempty"`
}

// Seal authenticates the fields of a status that decide whether the gate is open.
type Seal struct {
	// Sequence increases with each change of the fields, so that an earlier status is not valid again.
	// +required
	Sequence int64 `json:"sequence"`
	// Value is a message authentication code of the fields, with a key of the controllers.
	// +required
	Value string `json:"value"`
}

// ApprovedChange is a change with the approvals that a rule requires.
type ApprovedChange struct {
	// Rule that requires the approvals.
	// +required
	Rule string `json:"rule"`
	// Change that is approved, as status.pending.change of the object that waits.
	// +required
	Change string `json:"change"`
	// Until is the time at which too few approvals are left.
	// +optional
	Until *meta.Time `json:"until,omitempty"`
}

// Transition is a future change of a gate.
type Transition struct {
	// At is the time at which it happens or happened.
	// +required
	At meta.Time `json:"at"`
	// State of the gate after the transition.
	// +required
	State State `json:"state"`
}

// Explanation explains why a gate is in its current state.
type Explanation struct {
	// Reason is a machine-readable reason.
	// +required
	Reason string `json:"reason"`
	// Message is a human-readable explanation.
	// +required
	Message string `json:"message"`
}

// ObservedApproval is an approval as observed by the gate.
type ObservedApproval struct {
	// Name of the GateApproval.
	// +required
	Name string `json:"name"`
	// User who approved.
	// +required
	User string `json:"user"`
	// At is the time at which it happens or happened.
	// +required
	At meta.Time `json:"at"`
	// Until is the time at which it expires.
	// +optional
	Until *meta.Time `json:"until,omitempty"`
	// Revision that is approved. If empty, the approval is for any revision.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Counts reports whether the approval counts now.
	// +required
	Counts bool `json:"counts"`
	// Message explains why the approval does not count.
	// +optional
	Message string `json:"message,omitempty"`
}

// CheckResult is the result of a check.
type CheckResult struct {
	// Name of the check.
	// +required
	Name string `json:"name"`
	// Holds reports whether the check passes, and has passed for the required time.
	// +required
	Holds bool `json:"holds"`
	// Passed reports whether the last attempt passed.
	// +required
	Passed bool `json:"passed"`
	// Since is the time of the first attempt with the current result.
	// +required
	Since meta.Time `json:"since"`
	// CheckedAt is the time of the last attempt.
	// +required
	CheckedAt meta.Time `json:"checkedAt"`
	// Generation of the gate that defined the check.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Message describes the result.
	// +optional
	Message string `json:"message,omitempty"`
	// Revision is what a check of a revision has observed.
	// +optional
	Revision *ObservedRevision `json:"revision,omitempty"`
}

// ObservedRevision is what a check of a revision has observed of its objects.
type ObservedRevision struct {
	// Ready is the revision that all objects are Ready at. It is empty if they are not.
	// +optional
	Ready string `json:"ready,omitempty"`
	// Since is the time since when they have been Ready at it, as far as the gate has observed.
	// +optional
	Since *meta.Time `json:"since,omitempty"`
	// Until is the time at which they will have been Ready at it for long enough.
	// +optional
	Until *meta.Time `json:"until,omitempty"`
	// Promoted is the revision that the check allows: the last one that all objects were Ready at for long enough.
	// +optional
	Promoted string `json:"promoted,omitempty"`
	// PromotedAt is the time from which the check has allowed it.
	// +optional
	PromotedAt *meta.Time `json:"promotedAt,omitempty"`
	// ObservedAt is the last time at which the objects could be read.
	// +optional
	ObservedAt *meta.Time `json:"observedAt,omitempty"`
	// Digest identifies the check, its objects, their generations, and since when they have been Ready.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// WaitingObject is an object that waits for a gate.
type WaitingObject struct {
	// Kind of the object.
	// +required
	Kind string `json:"kind"`
	// Namespace of the object.
	// +required
	Namespace string `json:"namespace"`
	// Name of the object.
	// +required
	Name string `json:"name"`
	// Revision that the object would be updated to.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Since is the time at which it started to wait.
	// +optional
	Since *meta.Time `json:"since,omitempty"`
	// Created is the number of objects that the change would create.
	// +optional
	Created *int64 `json:"created,omitempty"`
	// Configured is the number of objects that the change would modify.
	// +optional
	Configured *int64 `json:"configured,omitempty"`
	// Deleted is the number of objects that the change would delete.
	// +optional
	Deleted *int64 `json:"deleted,omitempty"`
	// Risk of the change: low, medium or high.
	// +optional
	Risk string `json:"risk,omitempty"`
	// Change identifies the change to approvals, if a rule of the gate requires them.
	// +optional
	Change string `json:"change,omitempty"`
	// Rule of the gate that holds the change; empty if none does.
	// +optional
	Rule string `json:"rule,omitempty"`
	// Message says why the rules of the gate hold the change.
	// +optional
	Message string `json:"message,omitempty"`
}

// HistoryEntry is a past transition.
type HistoryEntry struct {
	// At is the time at which it happens or happened.
	// +required
	At meta.Time `json:"at"`
	// State of the gate after the transition.
	// +required
	State State `json:"state"`
	// Reason is a machine-readable reason, as in status.why.
	// +required
	Reason string `json:"reason"`
	// Message is a human-readable explanation.
	// +optional
	Message string `json:"message,omitempty"`
	// By is the user who requested the transition. It is set only if the API server verified the name.
	// +optional
	By string `json:"by,omitempty"`
	// From is the client that made the request, as it identified itself to the API server.
	// +optional
	From string `json:"from,omitempty"`
	// Revisions that the transition was for. If empty, it was for any revision.
	// +optional
	Revisions []string `json:"revisions,omitempty"`
}
