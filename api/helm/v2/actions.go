package v2

import "github.com/sluice-gitops/sluice/api/meta"

// What happens to the objects of the crds directory of a chart.
const (
	CRDsSkip          = "Skip"          // neither created nor changed
	CRDsCreate        = "Create"        // created; existing objects are not changed
	CRDsCreateReplace = "CreateReplace" // created and updated; never deleted
)

// Strategies after a failed install or upgrade.
const (
	StrategyRemediateOnFailure = "RemediateOnFailure" // remediate the release, then retry
	StrategyRetryOnFailure     = "RetryOnFailure"     // retry without remediation
)

// How a failed upgrade is remediated.
const (
	RemediationRollback  = "rollback"
	RemediationUninstall = "uninstall"
)

// How the objects of an upgrade or rollback are written.
const (
	ServerSideApplyEnabled  = "enabled"
	ServerSideApplyDisabled = "disabled"
	ServerSideApplyAuto     = "auto" // as the last release was written
)

// What happens if the name of the chart changes.
const (
	ChartNameChangeInPlaceUpdate = "InPlaceUpdate"
	ChartNameChangeReinstall     = "Reinstall"
)

// Install configures installs.
type Install struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Strategy after a failed install.
	// +optional
	Strategy *InstallStrategy `json:"strategy,omitempty"`

	// Remediation of a failed install.
	// +optional
	Remediation *InstallRemediation `json:"remediation,omitempty"`

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

// InstallStrategy defines what happens after a failed install.
// +kubebuilder:validation:XValidation:rule="!has(self.retryInterval) || self.name !=
// +>  'RemediateOnFailure'",message="retryInterval is only supported by the strategy 'RetryOnFailure'"
type InstallStrategy struct {
	// Name of the strategy.
	// +kubebuilder:validation:Enum=RemediateOnFailure;RetryOnFailure
	// +required
	Name string `json:"name"`
	// RetryInterval after a failure. Defaults to 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	RetryInterval *meta.Duration `json:"retryInterval,omitempty"`
}

// InstallRemediation defines how a failed install is remediated: the release is uninstalled.
type InstallRemediation struct {
	// Retries after a failure; negative for any number. Defaults to 0.
	// +optional
	Retries int `json:"retries,omitempty"`
	// IgnoreTestFailures does not count failed tests as a failure. Defaults to spec.test.ignoreFailures.
	// +optional
	IgnoreTestFailures *bool `json:"ignoreTestFailures,omitempty"`
	// RemediateLastFailure also remediates the failure that uses up the retries. Defaults to false.
	// +optional
	RemediateLastFailure *bool `json:"remediateLastFailure,omitempty"`
}

// Upgrade configures upgrades.
type Upgrade struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Strategy after a failed upgrade.
	// +optional
	Strategy *UpgradeStrategy `json:"strategy,omitempty"`

	// Remediation of a failed upgrade.
	// +optional
	Remediation *UpgradeRemediation `json:"remediation,omitempty"`

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

// UpgradeStrategy defines what happens after a failed upgrade.
// +kubebuilder:validation:XValidation:rule="!has(self.retryInterval) || self.name ==
// +>  'RetryOnFailure'",message="retryInterval is only supported by the strategy 'RetryOnFailure'"
type UpgradeStrategy struct {
	// Name of the strategy.
	// +kubebuilder:validation:Enum=RemediateOnFailure;RetryOnFailure
	// +required
	Name string `json:"name"`
	// RetryInterval after a failure. Defaults to 5m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	RetryInterval *meta.Duration `json:"retryInterval,omitempty"`
}

// UpgradeRemediation defines how a failed upgrade is remediated.
type UpgradeRemediation struct {
	// Retries after a failure; negative for any number. Defaults to 0.
	// +optional
	Retries int `json:"retries,omitempty"`
	// IgnoreTestFailures does not count failed tests as a failure. Defaults to spec.test.ignoreFailures.
	// +optional
	IgnoreTestFailures *bool `json:"ignoreTestFailures,omitempty"`
	// RemediateLastFailure also remediates the failure that uses up the retries. Defaults to true if
	// retries is not 0.
	// +optional
	RemediateLastFailure *bool `json:"remediateLastFailure,omitempty"`
	// Strategy of the remediation. Defaults to rollback.
	// +kubebuilder:validation:Enum=rollback;uninstall
	// +optional
	Strategy string `json:"strategy,omitempty"`
}

// Test configures the tests of a release.
type Test struct {
	// Enable runs the tests after an install and an upgrade.
	// +optional
	Enable bool `json:"enable,omitempty"`
	// Timeout of each operation. Defaults to spec.timeout.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`
	// IgnoreFailures reports failed tests, but does not count them as a failure.
	// +optional
	IgnoreFailures bool `json:"ignoreFailures,omitempty"`
	// Filters select the tests to run, or to exclude.
	// +optional
	Filters []Filter `json:"filters,omitempty"`
}

// Filter selects one test.
type Filter struct {
	// Name of the test.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Exclude the test, instead of including it.
	// +optional
	Exclude bool `json:"exclude,omitempty"`
}

// Rollback configures rollbacks.
type Rollback struct {
	// Timeout of each operation. Defaults to spec.timeout.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
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
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
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

func (i *Install) timeout() *meta.Duration {
	if i == nil {
		return nil
	}
	return i.Timeout
}

func (u *Upgrade) timeout() *meta.Duration {
	if u == nil {
		return nil
	}
	return u.Timeout
}

func (t *Test) timeout() *meta.Duration {
	if t == nil {
		return nil
	}
	return t.Timeout
}

func (r *Rollback) timeout() *meta.Duration {
	if r == nil {
		return nil
	}
	return r.Timeout
}

func (u *Uninstall) timeout() *meta.Duration {
	if u == nil {
		return nil
	}
	return u.Timeout
}
