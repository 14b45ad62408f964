package meta

// Condition types shared by several kinds, beside the kernel's own (Ready, Reconciling, Stalled).
const (
	DriftedCondition = "Drifted" // True while live objects are not as they were applied
	HealthyCondition = "Healthy"

	// ApprovedCondition of a sync is False while a gate is closed to it, and not there when no gate stands over it.
	ApprovedCondition = "Approved"
	// BlockedCondition of a source is True while a gate is closed to it, and not there otherwise.
	BlockedCondition = "Blocked"
)

// Condition reasons shared by several kinds.
const (
	AccessDeniedReason            = "AccessDenied"
	AppliedWithWarningsReason     = "AppliedWithWarnings"
	ArtifactFailedReason          = "ArtifactFailed"
	AuthenticationFailedReason    = "AuthenticationFailed"
	BuildFailedReason             = "BuildFailed"
	DependencyNotReadyReason      = "DependencyNotReady"
	DriftContestedReason          = "DriftContested" // another manager changes back what is corrected
	DriftCorrectedReason          = "DriftCorrected"
	DriftDetectedReason           = "DriftDetected"
	DriftResolvedReason           = "DriftResolved"
	FailedReason                  = "Failed"
	GateClosedReason              = "GateClosed"
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
	StorageOperationFailedReason  = "StorageOperationFailed"
	SucceededReason               = "Succeeded"
	URLInvalidReason              = "URLInvalid"
)
