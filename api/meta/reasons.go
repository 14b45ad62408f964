package meta

// Condition types shared by several kinds, in addition to those of the kernel (Ready, Reconciling, Stalled).
const (
	DriftedCondition = "Drifted" // True while live objects differ from what was applied
	HealthyCondition = "Healthy"

	// ApprovedCondition of a deployed object is False while a gate blocks it, and absent if no gate applies to it.
	ApprovedCondition = "Approved"
	// BlockedCondition of a source is True while a gate blocks it, and absent otherwise.
	BlockedCondition = "Blocked"
	// ContendedCondition is True while another owner declares the same object.
	ContendedCondition = "Contended"
)

// Condition reasons shared by several kinds.
const (
	AccessDeniedReason            = "AccessDenied"
	AppliedWithWarningsReason     = "AppliedWithWarnings"
	ArtifactFailedReason          = "ArtifactFailed"
	AuthenticationFailedReason    = "AuthenticationFailed"
	BuildFailedReason             = "BuildFailed"
	DependencyNotReadyReason      = "DependencyNotReady"
	DriftContestedReason          = "DriftContested" // another manager reverts each correction
	DriftCorrectedReason          = "DriftCorrected"
	RevertedReason                = "Reverted"     // a gate made the object go back to an earlier revision
	RevertFailedReason            = "RevertFailed" // it cannot go back
	DriftDetectedReason           = "DriftDetected"
	DriftResolvedReason           = "DriftResolved"
	FailedReason                  = "Failed"
	GateClosedReason              = "GateClosed"
	GateNotEvaluatedReason        = "GateNotEvaluated" // a gate counts as closed until the gate controller has seen it
	GateNotFoundReason            = "GateNotFound"
	GateOpenReason                = "GateOpen"
	GitOperationFailedReason      = "GitOperationFailed"
	HealthCheckFailedReason       = "HealthCheckFailed"
	HealthCheckCanceledReason     = "HealthCheckCanceled"
	InvalidCELExpressionReason    = "InvalidCELExpression"
	InvalidSpecReason             = "InvalidSpec"
	ProgressingReason             = "Progressing"
	PruneFailedReason             = "PruneFailed"
	ReconciliationFailedReason    = "ReconciliationFailed"
	ReconciliationSucceededReason = "ReconciliationSucceeded"
	RenderFailedReason            = "RenderFailed"  // a program that publishes an artifact
	SeveralOwnersReason           = "SeveralOwners" // of an object
	StorageOperationFailedReason  = "StorageOperationFailed"
	SucceededReason               = "Succeeded"
	URLInvalidReason              = "URLInvalid"
)
