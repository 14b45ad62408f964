package v2beta1

import (
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Install configures installs.
type Install struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Strategy after a failed install.
	// +optional
	Strategy *helmv2.InstallStrategy `json:"strategy,omitempty"`

	// Remediation of a failed install.
	// +optional
	Remediation *helmv2.InstallRemediation `json:"remediation,omitempty"`

	// DisableWait does not wait until the objects are healthy.
	// +optional
	DisableWait bool `json:"disableWait,omitempty"`

	// DisableWaitForJobs does not wait until Jobs are complete.
	// +optional
	DisableWaitForJobs bool `json:"disableWaitForJobs,omitempty"`

	// DisableHooks does not run hooks.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`

	// DisableOpenAPIValidation does not validate objects against the schema of the API server.
	// +optional
	DisableOpenAPIValidation bool `json:"disableOpenAPIValidation,omitempty"`

	// DisableSchemaValidation does not validate values against the schema of the chart.
	// +optional
	DisableSchemaValidation bool `json:"disableSchemaValidation,omitempty"`

	// DisableTakeOwnership fails if an object exists that belongs to no release or to another one.
	// +optional
	DisableTakeOwnership bool `json:"disableTakeOwnership,omitempty"`

	// Replace uses the name of a deleted release that is still in the history.
	// +optional
	Replace bool `json:"replace,omitempty"`

	// SkipCRDs neither creates nor changes the objects of the crds directory.
	// Deprecated: use crds.
	// +optional
	SkipCRDs bool `json:"skipCRDs,omitempty"`

	// CRDs defines what happens to the objects of the crds directory. Defaults to Create.
	// +kubebuilder:validation:Enum=Skip;Create;CreateReplace
	// +optional
	CRDs string `json:"crds,omitempty"`

	// CreateNamespace creates the target namespace if it does not exist.
	// +optional
	CreateNamespace bool `json:"createNamespace,omitempty"`

	// ServerSideApply writes objects by server-side apply. Defaults to true.
	// +optional
	ServerSideApply *bool `json:"serverSideApply,omitempty"`
}

// Upgrade configures upgrades.
type Upgrade struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Strategy after a failed upgrade.
	// +optional
	Strategy *helmv2.UpgradeStrategy `json:"strategy,omitempty"`

	// Remediation of a failed upgrade.
	// +optional
	Remediation *helmv2.UpgradeRemediation `json:"remediation,omitempty"`

	// DisableWait does not wait until the objects are healthy.
	// +optional
	DisableWait bool `json:"disableWait,omitempty"`

	// DisableWaitForJobs does not wait until Jobs are complete.
	// +optional
	DisableWaitForJobs bool `json:"disableWaitForJobs,omitempty"`

	// DisableHooks does not run hooks.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`

	// DisableOpenAPIValidation does not validate objects against the schema of the API server.
	// +optional
	DisableOpenAPIValidation bool `json:"disableOpenAPIValidation,omitempty"`

	// DisableSchemaValidation does not validate values against the schema of the chart.
	// +optional
	DisableSchemaValidation bool `json:"disableSchemaValidation,omitempty"`

	// DisableTakeOwnership fails if an object exists that belongs to no release or to another one.
	// +optional
	DisableTakeOwnership bool `json:"disableTakeOwnership,omitempty"`

	// Force re-creates objects when an immutable field changes.
	// +optional
	Force bool `json:"force,omitempty"`

	// PreserveValues merges the values into those of the last release.
	// +optional
	PreserveValues bool `json:"preserveValues,omitempty"`

	// CleanupOnFail deletes objects that a failed upgrade created.
	// +optional
	CleanupOnFail bool `json:"cleanupOnFail,omitempty"`

	// CRDs defines what happens to the objects of the crds directory. Defaults to Skip.
	// +kubebuilder:validation:Enum=Skip;Create;CreateReplace
	// +optional
	CRDs string `json:"crds,omitempty"`

	// ServerSideApply defines how objects are written. Defaults to auto: as the last release was written.
	// +kubebuilder:validation:Enum=enabled;disabled;auto
	// +optional
	ServerSideApply string `json:"serverSideApply,omitempty"`

	// ChartNameChangeStrategy defines what happens if the name of the chart changes: Reinstall, the default,
	// uninstalls the release first, InPlaceUpdate upgrades it.
	// +kubebuilder:validation:Enum=InPlaceUpdate;Reinstall
	// +optional
	ChartNameChangeStrategy string `json:"chartNameChangeStrategy,omitempty"`
}

// Test configures the tests of a release.
type Test struct {
	// Enable runs the tests after an install and an upgrade.
	// +optional
	Enable bool `json:"enable,omitempty"`
	// Timeout of each operation. Defaults to spec.timeout.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`
	// IgnoreFailures reports failed tests, but does not count them as a failure.
	// +optional
	IgnoreFailures bool `json:"ignoreFailures,omitempty"`
	// Filters select the tests to run, or to exclude.
	// +optional
	Filters []helmv2.Filter `json:"filters,omitempty"`
}

// Rollback configures rollbacks.
type Rollback struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`
	// DisableWait does not wait until the objects are healthy.
	// +optional
	DisableWait bool `json:"disableWait,omitempty"`
	// DisableWaitForJobs does not wait until Jobs are complete.
	// +optional
	DisableWaitForJobs bool `json:"disableWaitForJobs,omitempty"`
	// DisableHooks does not run hooks.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`
	// Recreate is accepted for manifests that set it. Helm 4 restarts no pods.
	// +optional
	Recreate bool `json:"recreate,omitempty"`
	// Force re-creates objects when an immutable field changes.
	// +optional
	Force bool `json:"force,omitempty"`
	// CleanupOnFail deletes objects that a failed rollback created.
	// +optional
	CleanupOnFail bool `json:"cleanupOnFail,omitempty"`
	// ServerSideApply defines how objects are written. Defaults to auto: as the release was written.
	// +kubebuilder:validation:Enum=enabled;disabled;auto
	// +optional
	ServerSideApply string `json:"serverSideApply,omitempty"`
}

// Uninstall configures uninstalls.
type Uninstall struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`
	// DisableHooks does not run hooks.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`
	// KeepHistory keeps the stored revisions of the release.
	// +optional
	KeepHistory bool `json:"keepHistory,omitempty"`
	// DisableWait does not wait until the objects are deleted.
	// +optional
	DisableWait bool `json:"disableWait,omitempty"`
	// DeletionPropagation of the deleted objects.
	// +kubebuilder:validation:Enum=background;foreground;orphan
	// +kubebuilder:default=background
	// +optional
	DeletionPropagation string `json:"deletionPropagation,omitempty"`
}
