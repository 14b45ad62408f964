package meta

// Condition types shared by several kinds, beside the kernel's own (Ready, Reconciling, Stalled).
const (
	HealthyCondition = "Healthy"
)

// Condition reasons shared by several kinds.
const (
	AccessDeniedReason            = "AccessDenied"
	ArtifactFailedReason          = "ArtifactFailed"
	AuthenticationFailedReason    = "AuthenticationFailed"
	BuildFailedReason             = "BuildFailed"
	DependencyNotReadyReason      = "DependencyNotReady"
	FailedReason                  = "Failed"
	GitOperationFailedReason      = "GitOperationFailed"
	HealthCheckFailedReason       = "HealthCheckFailed"
	HealthCheckCanceledReason     = "HealthCheckCanceled"
	InvalidCELExpressionReason    = "InvalidCELExpression"
	ProgressingReason             = "Progressing"
	PruneFailedReason             = "PruneFailed"
	ReconciliationFailedReason    = "ReconciliationFailed"
	ReconciliationSucceededReason = "ReconciliationSucceeded"
	StorageOperationFailedReason  = "StorageOperationFailed"
	SucceededReason               = "Succeeded"
	URLInvalidReason              = "URLInvalid"
)
