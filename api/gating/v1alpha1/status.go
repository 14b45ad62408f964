package v1alpha1

import (
	"github.com/sluice-gitops/sluice/api/meta"
)

// Bounds of the lists in a gate's status.
const (
	MaxWaiting   = 100 // objects listed; waitingCount has all
	MaxHistory   = 50  // transitions, the newest first
	MaxApprovals = 100
)

// Reasons of status.why and of the history: what made the gate as it is.
const (
	WhyDefault          = "Default"          // nothing else says what it is
	WhyRequested        = "Requested"        // somebody asked for it
	WhyScheduled        = "Scheduled"        // the schedule says so
	WhyApproved         = "Approved"         // the approvals that it needs are there
	WhyOverridden       = "Overridden"       // somebody broke the glass
	WhyApprovalRequired = "ApprovalRequired" // approvals are missing
	WhyCheckFailed      = "CheckFailed"      // a check does not hold, or not long enough
)

// Reasons of conditions of gates that cannot be evaluated, and are closed.
const (
	InvalidRequestReason   = "InvalidRequest"  // an annotation cannot be read, or two contradict each other
	InvalidWindowReason    = "InvalidWindow"   // spec.window is none
	InvalidScheduleReason  = "InvalidSchedule" // spec.schedule cannot be followed
	InvalidCheckReason     = "InvalidCheck"    // spec.checks cannot be checked
	CheckCycleReason       = "CheckCycle"      // the gate waits for itself by way of other gates' checks
	PolicyMissingReason    = "PolicyMissing"   // the API server does not vouch for the authors of approvals
	CheckFailedReason      = WhyCheckFailed    // a check does not hold
	ApprovalRequiredReason = WhyApprovalRequired
)

// GateStatus is what was observed of the gate.
type GateStatus struct {
	meta.Status `json:",inline"`

	// RequestedAt is the time of the latest request that took effect.
	// +optional
	RequestedAt *meta.Time `json:"requestedAt,omitempty"`

	// ResetToDefaultAt is when that request ends, or ended.
	// +optional
	ResetToDefaultAt *meta.Time `json:"resetToDefaultAt,omitempty"`

	// NextTransition is when the gate changes next, as far as the clock decides it.
	// +optional
	NextTransition *Transition `json:"nextTransition,omitempty"`

	// Why the gate is as it is.
	// +optional
	Why *Explanation `json:"why,omitempty"`

	// ApprovedRevisions are the only ones that an open gate lets through; all when empty.
	// +optional
	ApprovedRevisions []string `json:"approvedRevisions,omitempty"`

	// Approvals that there are, and whether they count.
	// +optional
	Approvals []ObservedApproval `json:"approvals,omitempty"`

	// Checks and what they gave.
	// +listType=map
	// +listMapKey=name
	// +optional
	Checks []CheckResult `json:"checks,omitempty"`

	// WaitingCount is how many objects wait for the gate to open.
	// +optional
	WaitingCount int64 `json:"waitingCount,omitempty"`

	// Waiting lists objects that wait, the first 100 of them.
	// +optional
	Waiting []WaitingObject `json:"waiting,omitempty"`

	// History of the gate, the newest transition first.
	// +optional
	History []HistoryEntry `json:"history,omitempty"`
}

// Transition is a change of a gate that is to come.
type Transition struct {
	// At is when.
	// +required
	At meta.Time `json:"at"`
	// State that the gate has from then on.
	// +required
	State State `json:"state"`
}

// Explanation says why a gate is as it is.
type Explanation struct {
	// Reason for programs.
	// +required
	Reason string `json:"reason"`
	// Message for people.
	// +required
	Message string `json:"message"`
}

// ObservedApproval is an approval as the gate sees it.
type ObservedApproval struct {
	// Name of the GateApproval.
	// +required
	Name string `json:"name"`
	// User who approved.
	// +required
	User string `json:"user"`
	// At is when.
	// +required
	At meta.Time `json:"at"`
	// Until is when it no longer counts.
	// +optional
	Until *meta.Time `json:"until,omitempty"`
	// Revision that it is for; any when empty.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Counts tells whether it counts now.
	// +required
	Counts bool `json:"counts"`
	// Message says why it does not count.
	// +optional
	Message string `json:"message,omitempty"`
}

// CheckResult is what a check gave.
type CheckResult struct {
	// Name of the check.
	// +required
	Name string `json:"name"`
	// Holds tells whether the check holds, and has for as long as it must.
	// +required
	Holds bool `json:"holds"`
	// Passed tells what the last try gave.
	// +required
	Passed bool `json:"passed"`
	// Since is when it began to give that.
	// +required
	Since meta.Time `json:"since"`
	// CheckedAt is when it was last tried.
	// +required
	CheckedAt meta.Time `json:"checkedAt"`
	// Generation of the gate whose check it was.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Message says what it gave.
	// +optional
	Message string `json:"message,omitempty"`
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
	// Revision that it would move to.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Since is when it began to wait.
	// +optional
	Since *meta.Time `json:"since,omitempty"`
	// Created is how many objects the change would create.
	// +optional
	Created *int64 `json:"created,omitempty"`
	// Configured is how many objects the change would configure.
	// +optional
	Configured *int64 `json:"configured,omitempty"`
	// Deleted is how many objects the change would delete.
	// +optional
	Deleted *int64 `json:"deleted,omitempty"`
}

// HistoryEntry is a transition that happened.
type HistoryEntry struct {
	// At is when.
	// +required
	At meta.Time `json:"at"`
	// State of the gate from then on.
	// +required
	State State `json:"state"`
	// Reason for programs, as in status.why.
	// +required
	Reason string `json:"reason"`
	// Message says why.
	// +optional
	Message string `json:"message,omitempty"`
	// By is who asked for it, where somebody did and the API server vouches for the name.
	// +optional
	By string `json:"by,omitempty"`
	// From is the client by which it was asked for, as it named itself to the API server.
	// +optional
	From string `json:"from,omitempty"`
	// Revisions that it was for; any when empty.
	// +optional
	Revisions []string `json:"revisions,omitempty"`
}
