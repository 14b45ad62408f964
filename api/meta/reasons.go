package meta

// Condition types shared by several kinds, beside the kernel's own (Ready, Reconciling, Stalled).
const (
	DriftedCondition = "Drifted" // True while live objects are not as they were applied
	HealthyCondition = "Healthy"
)

// Condition reasons shared by several kinds.
const (
	AccessDeniedReason            = "AccessDenied"
	ArtifactFailedReason          = "ArtifactFailed"
	AuthenticationFailedReason    = "AuthenticationFailed"
	BuildFailedReason             = "BuildFailed"
	DependencyNotReadyReason      = "DependencyNotReady"
	DriftContestedReason          = "DriftContested" // another manager changes back what is corrected
	DriftCorrectedReason          = "DriftCorrected"
	DriftDetectedReason           = "DriftDetected"
	DriftResolvedReason           = "DriftResolved"
	FailedReason                  = "Failed"
	GitOperationFailedReason      = "GitOperationFailed"
	HealthCheckFailedReason       = "HealthCheckFailed"
	InvalidCELExpressionReason    = "InvalidCELExpression"
	ProgressingReason             = "Progressing"
	PruneFailedReason             = "PruneFailed"
	ReconciliationFailedReason    = "ReconciliationFailed"
	ReconciliationSucceededReason = "ReconciliationSucceeded"
	StorageOperationFailedReason  = "StorageOperationFailed"
	SucceededReason               = "Succeeded"
	URLInvalidReason              = "URLInvalid"
)
