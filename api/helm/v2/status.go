package v2

import "github.com/sluice-gitops/sluice/api/meta"

// Condition types of a HelmRelease, in addition to those that all kinds have.
const (
	ReleasedCondition    = "Released"    // the last install or upgrade succeeded
	RemediatedCondition  = "Remediated"  // the last failure was remediated
	TestSuccessCondition = "TestSuccess" // the tests of the last release succeeded
)

// Condition and event reasons of a HelmRelease.
const (
	InstallSucceededReason      = "InstallSucceeded"
	InstallFailedReason         = "InstallFailed"
	UpgradeSucceededReason      = "UpgradeSucceeded"
	UpgradeFailedReason         = "UpgradeFailed"
	TestSucceededReason         = "TestSucceeded"
	TestFailedReason            = "TestFailed"
	RollbackSucceededReason     = "RollbackSucceeded"
	RollbackFailedReason        = "RollbackFailed"
	UninstallSucceededReason    = "UninstallSucceeded"
	UninstallFailedReason       = "UninstallFailed"
	ValuesErrorReason           = "ValuesError"
	RetriesExceededReason       = "RetriesExceeded"
	MissingRollbackTargetReason = "MissingRollbackTarget"
	NoDriftDetectedReason       = "NoDriftDetected"
	InventoryBuildFailedReason  = "InventoryBuildFailed"
)

// Release actions.
const (
	ActionInstall = "install"
	ActionUpgrade = "upgrade"
)

// HelmReleaseStatus is what was observed of the release.
type HelmReleaseStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// HelmChart is the source object that was created for the release, as <namespace>/<name> of a HelmChart or as
	// <kind>/<namespace>/<name>.
	// +optional
	HelmChart string `json:"helmChart,omitempty"`

	// StorageNamespace is the namespace in which the release is stored.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	StorageNamespace string `json:"storageNamespace,omitempty"`

	// History of the last releases, newest first.
	// +optional
	History []Snapshot `json:"history,omitempty"`

	// Inventory of the released objects: those of the manifest and of the crds directory, without hooks.
	// +optional
	Inventory *meta.ResourceInventory `json:"inventory,omitempty"`

	// LastAttemptedGeneration is the last generation that was released.
	// +optional
	LastAttemptedGeneration int64 `json:"lastAttemptedGeneration,omitempty"`

	// LastAttemptedRevision is the version of the last chart that was released.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// LastAttemptedRevisionDigest is the digest of the OCI artifact of the last chart that was released.
	// +optional
	LastAttemptedRevisionDigest string `json:"lastAttemptedRevisionDigest,omitempty"`

	// LastAttemptedConfigDigest is the digest of the values that were last released.
	// +optional
	LastAttemptedConfigDigest string `json:"lastAttemptedConfigDigest,omitempty"`

	// LastAttemptedReleaseAction is the last action.
	// +kubebuilder:validation:Enum=install;upgrade
	// +optional
	LastAttemptedReleaseAction string `json:"lastAttemptedReleaseAction,omitempty"`

	// LastAttemptedReleaseActionDuration is the duration of the last action.
	// +optional
	LastAttemptedReleaseActionDuration *meta.Elapsed `json:"lastAttemptedReleaseActionDuration,omitempty"`

	// LastAttemptedValuesChecksum was written by older versions.
	// Deprecated: use lastAttemptedConfigDigest.
	// +optional
	LastAttemptedValuesChecksum string `json:"lastAttemptedValuesChecksum,omitempty"`

	// LastAppliedRevision was written by older versions.
	// Deprecated: use history.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// LastReleaseRevision was written by older versions.
	// Deprecated: use history.
	// +optional
	LastReleaseRevision int `json:"lastReleaseRevision,omitempty"`

	// LastHandledForceAt is the last handled value of the annotation forceAt.
	// +optional
	LastHandledForceAt string `json:"lastHandledForceAt,omitempty"`

	// LastHandledResetAt is the last handled value of the annotation resetAt.
	// +optional
	LastHandledResetAt string `json:"lastHandledResetAt,omitempty"`

	// ObservedPostRenderersDigest is the digest of spec.postRenderers of the last release.
	// +optional
	ObservedPostRenderersDigest string `json:"observedPostRenderersDigest,omitempty"`

	// ObservedCommonMetadataDigest is the digest of spec.commonMetadata of the last release.
	// +optional
	ObservedCommonMetadataDigest string `json:"observedCommonMetadataDigest,omitempty"`

	// Failures since the last success.
	// +optional
	Failures int64 `json:"failures,omitempty"`

	// InstallFailures since the last success that count against the retries.
	// +optional
	InstallFailures int64 `json:"installFailures,omitempty"`

	// UpgradeFailures since the last success that count against the retries.
	// +optional
	UpgradeFailures int64 `json:"upgradeFailures,omitempty"`
}

// Snapshot is one entry of the history: a release as it was stored.
type Snapshot struct {
	// APIVersion of the digest.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Digest of the stored release.
	// +required
	Digest string `json:"digest"`
	// Action that created the release.
	// +optional
	Action string `json:"action,omitempty"`
	// Name of the release.
	// +required
	Name string `json:"name"`
	// Namespace of the release.
	// +required
	Namespace string `json:"namespace"`
	// Version of the release.
	// +required
	Version int `json:"version"`
	// Status of the release.
	// +required
	Status string `json:"status"`
	// ChartName of the release.
	// +required
	ChartName string `json:"chartName"`
	// ChartVersion of the release.
	// +required
	ChartVersion string `json:"chartVersion"`
	// AppVersion of the chart.
	// +optional
	AppVersion string `json:"appVersion,omitempty"`
	// ConfigDigest is the digest of the values of the release.
	// +required
	ConfigDigest string `json:"configDigest"`
	// FirstDeployed is the time of the install.
	// +required
	FirstDeployed meta.Time `json:"firstDeployed"`
	// LastDeployed is the time of the release.
	// +required
	LastDeployed meta.Time `json:"lastDeployed"`
	// Deleted is the time of the uninstall.
	// +optional
	Deleted *meta.Time `json:"deleted,omitempty"`
	// TestHooks that ran, by name.
	// +optional
	TestHooks map[string]TestHookStatus `json:"testHooks,omitempty"`
	// OCIDigest of the artifact of the chart.
	// +optional
	OCIDigest string `json:"ociDigest,omitempty"`
}

// TestHookStatus is the result of a test.
type TestHookStatus struct {
	// +optional
	LastStarted *meta.Time `json:"lastStarted,omitempty"`
	// +optional
	LastCompleted *meta.Time `json:"lastCompleted,omitempty"`
	// +optional
	Phase string `json:"phase,omitempty"`
}
