package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ForceRequestAnnotation ignores the schedule of a provider if it has the value of a reconcile request.
const ForceRequestAnnotation = "reconcile.fluxcd.io/forceAt"

// Defaults of a provider, which annotations and spec.filter override.
const (
	DefaultProviderEvery   = 10 * time.Minute
	DefaultProviderTimeout = 2 * time.Minute
	DefaultFilterLimit     = 100
)

// Types of providers.
const (
	InputStatic                   = "Static"
	InputGitHubBranch             = "GitHubBranch"
	InputGitHubTag                = "GitHubTag"
	InputGitHubPullRequest        = "GitHubPullRequest"
	InputGitLabBranch             = "GitLabBranch"
	InputGitLabTag                = "GitLabTag"
	InputGitLabMergeRequest       = "GitLabMergeRequest"
	InputGitLabEnvironment        = "GitLabEnvironment"
	InputAzureDevOpsBranch        = "AzureDevOpsBranch"
	InputAzureDevOpsTag           = "AzureDevOpsTag"
	InputAzureDevOpsPullRequest   = "AzureDevOpsPullRequest"
	InputAWSCodeCommitBranch      = "AWSCodeCommitBranch"
	InputAWSCodeCommitTag         = "AWSCodeCommitTag"
	InputAWSCodeCommitPullRequest = "AWSCodeCommitPullRequest"
	InputGiteaBranch              = "GiteaBranch"
	InputGiteaTag                 = "GiteaTag"
	InputGiteaPullRequest         = "GiteaPullRequest"
	InputOCIArtifactTag           = "OCIArtifactTag"
	InputACRArtifactTag           = "ACRArtifactTag"
	InputECRArtifactTag           = "ECRArtifactTag"
	InputGARArtifactTag           = "GARArtifactTag"
	InputExternalService          = "ExternalService"
	InputExternalArtifact         = "ExternalArtifact"
)

// Reasons of a provider that is not ready, and of the event of a pass that its schedule does not allow.
const (
	InvalidScheduleReason       = "InvalidSchedule"
	InvalidDefaultValuesReason  = "InvalidDefaultValues"
	InvalidExportedInputsReason = "InvalidExportedInputs"
	SkippedDueToScheduleReason  = "SkippedDueToSchedule"
)

// ReconciliationDisabledReason is the reason of the event when a ResourceSet or a provider is suspended.
const ReconciliationDisabledReason = "ReconciliationDisabled"

// ResourceSetInputProviderSpec defines where inputs come from, which of them are exported, and when they are read.
// +kubebuilder:validation:XValidation:message="the types Static and ExternalArtifact have no url",rule="self.type !=
// +>  'Static' && self.type != 'ExternalArtifact' || !has(self.url)"
// +kubebuilder:validation:XValidation:message="url must be set for this type",rule="self.type == 'Static' || self.type
// +>  == 'ExternalArtifact' || has(self.url)"
// +kubebuilder:validation:XValidation:message="url must begin with http:// or https:// for this type",
// +> rule="!self.type.startsWith('Git') || !has(self.url) || self.url.startsWith('http')"
// +kubebuilder:validation:XValidation:message="url must begin with http:// or https:// for this type",
// +> rule="!self.type.startsWith('AzureDevOps') || !has(self.url) || self.url.startsWith('http://') ||
// +>  self.url.startsWith('https://')"
// +kubebuilder:validation:XValidation:message="url must begin with https:// for this type",
// +> rule="!self.type.startsWith('AWSCodeCommit') || !has(self.url) || self.url.startsWith('https://')"
// +kubebuilder:validation:XValidation:message="url must begin with oci:// for this type",
// +> rule="!self.type.endsWith('ArtifactTag') || !has(self.url) || self.url.startsWith('oci')"
// +kubebuilder:validation:XValidation:message="url must have the form oci://host/repository for this type",
// +> rule="!self.type.endsWith('ArtifactTag') || !has(self.url) || !self.url.startsWith('oci://') ||
// +>  self.url.substring(6).contains('/')"
// +kubebuilder:validation:XValidation:message="url must begin with http:// or https:// for this type",rule="self.type
// +>  != 'ExternalService' || !has(self.url) || self.url.startsWith('http')"
// +kubebuilder:validation:XValidation:message="insecure is only for the types ExternalService and OCIArtifactTag",
// +> rule="!has(self.insecure) || !self.insecure || self.type == 'ExternalService' || self.type == 'OCIArtifactTag'"
// +kubebuilder:validation:XValidation:message="insecure must be true for a url that begins with http://",
// +> rule="self.type != 'ExternalService' || !has(self.url) || !self.url.startsWith('http://') ||
// +>  (has(self.insecure) && self.insecure)"
// +kubebuilder:validation:XValidation:message="serviceAccountName is not for this type",
// +> rule="!has(self.serviceAccountName) || self.type.startsWith('AzureDevOps') ||
// +>  self.type.startsWith('AWSCodeCommit') || self.type.endsWith('ArtifactTag') || self.type == 'ExternalArtifact'"
// +kubebuilder:validation:XValidation:message="certSecretRef is not for this type",rule="!has(self.certSecretRef) ||
// +>  !(self.type == 'Static' || self.type == 'ExternalArtifact' || self.type.startsWith('AzureDevOps') ||
// +>  self.type.startsWith('AWSCodeCommit') || (self.type.endsWith('ArtifactTag') && self.type != 'OCIArtifactTag'))"
// +kubebuilder:validation:XValidation:message="secretRef is not for this type",rule="!has(self.secretRef) ||
// +>  !(self.type == 'Static' || self.type == 'ExternalArtifact' || self.type.startsWith('AWSCodeCommit') ||
// +>  (self.type.endsWith('ArtifactTag') && self.type != 'OCIArtifactTag'))"
// +kubebuilder:validation:XValidation:message="selectors must be set for the type ExternalArtifact",rule="self.type !=
// +>  'ExternalArtifact' || (has(self.selectors) && size(self.selectors) > 0)"
// +kubebuilder:validation:XValidation:message="selectors is only for the type ExternalArtifact",rule="self.type ==
// +>  'ExternalArtifact' || !has(self.selectors)"
type ResourceSetInputProviderSpec struct {
	// Type of the provider.
	// +kubebuilder:validation:Enum=Static;GitHubBranch;GitHubTag;GitHubPullRequest;GitLabBranch;GitLabTag;
	// +> GitLabMergeRequest;GitLabEnvironment;AzureDevOpsBranch;AzureDevOpsTag;AzureDevOpsPullRequest;
	// +> AWSCodeCommitBranch;AWSCodeCommitTag;AWSCodeCommitPullRequest;GiteaBranch;GiteaTag;GiteaPullRequest;
	// +> OCIArtifactTag;ACRArtifactTag;ECRArtifactTag;GARArtifactTag;ExternalService;ExternalArtifact
	// +required
	Type string `json:"type"`

	// URL of the git repository, of the image repository or of the service.
	// +kubebuilder:validation:Pattern="^((http|https|oci)://.*){0,1}$"
	// +optional
	URL string `json:"url,omitempty"`

	// SecretRef references the Secret with the login: username and password, token, the keys of a GitHub App, or a
	// Docker configuration, depending on the type.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef references the Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ServiceAccountName is the ServiceAccount whose identity is used: at the cloud of the type, for its image pull
	// secrets, or to read ExternalArtifacts.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Insecure allows plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// DefaultValues are added to each input set that lacks them.
	// +optional
	DefaultValues InputSet `json:"defaultValues,omitempty"`

	// Filter selects the branches, tags, change requests or environments that are exported.
	// +optional
	Filter *InputFilter `json:"filter,omitempty"`

	// Skip keeps the input set of a change request as it is, depending on its labels.
	// +optional
	Skip *InputSkip `json:"skip,omitempty"`

	// Selectors of ExternalArtifacts. An object is exported if any of them selects it.
	// +optional
	Selectors []ArtifactSelector `json:"selectors,omitempty"`

	// Schedule limits when the provider is reconciled. Without one, it is reconciled at its interval.
	// +optional
	Schedule []InputSchedule `json:"schedule,omitempty"`
}

// InputFilter selects what is exported. If several kinds of expressions are set, those for environments take
// precedence over those for tags, and those over the ones for branches.
type InputFilter struct {
	// IncludeBranch is a regular expression that branches must match. Change requests are matched by their source.
	// +optional
	IncludeBranch string `json:"includeBranch,omitempty"`

	// ExcludeBranch is a regular expression that branches must not match.
	// +optional
	ExcludeBranch string `json:"excludeBranch,omitempty"`

	// IncludeTag is a regular expression that tags must match.
	// +optional
	IncludeTag string `json:"includeTag,omitempty"`

	// ExcludeTag is a regular expression that tags must not match.
	// +optional
	ExcludeTag string `json:"excludeTag,omitempty"`

	// IncludeEnvironment is a regular expression that the names of environments must match.
	// +optional
	IncludeEnvironment string `json:"includeEnvironment,omitempty"`

	// ExcludeEnvironment is a regular expression that the names of environments must not match.
	// +optional
	ExcludeEnvironment string `json:"excludeEnvironment,omitempty"`

	// Labels that a change request must all have.
	// +optional
	Labels []string `json:"labels,omitempty"`

	// Limit is the maximum number of input sets.
	// +kubebuilder:default:=100
	// +kubebuilder:validation:Maximum=10000
	// +optional
	Limit int `json:"limit,omitempty"`

	// Semver is a range that the versions of tags must be in. The highest version comes first.
	// +optional
	Semver string `json:"semver,omitempty"`
}

// InputSkip defines which change requests keep their input sets.
type InputSkip struct {
	// Labels of change requests that are skipped; one that begins with ! skips those without the label. A skipped
	// change request keeps the input set that it has, and gets none if it has none.
	// +optional
	Labels []string `json:"labels,omitempty"`
}

// ArtifactSelector selects ExternalArtifacts by name or by label.
// +kubebuilder:validation:XValidation:message="name cannot be combined with matchLabels and matchExpressions",
// +> rule="!has(self.name) || (!has(self.matchLabels) && !has(self.matchExpressions))"
type ArtifactSelector struct {
	// Name of the ExternalArtifact.
	// +optional
	Name string `json:"name,omitempty"`

	// Namespace of the ExternalArtifacts. Defaults to the namespace of the provider.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	metav1.LabelSelector `json:",inline"`
}

// InputSchedule is a recurring time at which a provider is reconciled.
type InputSchedule struct {
	// Cron has the five fields of crontab, or is a descriptor such as @daily.
	// +required
	Cron string `json:"cron"`

	// TimeZone of the expression.
	// +kubebuilder:default:="UTC"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// Window is how long the provider may be reconciled after each start. It must be zero, or at least twice the
	// timeout.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:default:="0s"
	// +optional
	Window meta.Duration `json:"window,omitempty"`
}

// NextSchedule is the next start of a schedule.
type NextSchedule struct {
	InputSchedule `json:",inline"`

	// When it starts.
	// +required
	When meta.Time `json:"when"`
}

// ResourceSetInputProviderStatus is what was observed of the provider.
type ResourceSetInputProviderStatus struct {
	meta.Status `json:",inline"`

	// LastHandledForceAt is the last handled value of the annotation forceAt.
	// +optional
	LastHandledForceAt string `json:"lastHandledForceAt,omitempty"`

	// ExportedInputs are the input sets.
	// +optional
	ExportedInputs []InputSet `json:"exportedInputs,omitempty"`

	// LastExportedRevision is a digest of the input sets.
	// +optional
	LastExportedRevision string `json:"lastExportedRevision,omitempty"`

	// NextSchedule is the next start of the schedules.
	// +optional
	NextSchedule *NextSchedule `json:"nextSchedule,omitempty"`
}

// ResourceSetInputProvider exports sets of inputs for ResourceSets: from branches, tags and change requests of git
// hosts, tags of registries, services, or objects of the cluster.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rsip,categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
type ResourceSetInputProvider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceSetInputProviderSpec   `json:"spec,omitempty"`
	Status ResourceSetInputProviderStatus `json:"status,omitempty"`
}

// ResourceSetInputProviderList is a list of providers.
// +kubebuilder:object:root=true
type ResourceSetInputProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceSetInputProvider `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (p *ResourceSetInputProvider) CommonStatus() *meta.Status { return &p.Status.Status }

// Schedule returns the interval and the timeout that the annotations set.
func (p *ResourceSetInputProvider) Schedule() meta.Schedule {
	return scheduleOf(p.Annotations, DefaultProviderEvery, DefaultProviderTimeout)
}

// Requests returns the requests that are specific to the kind.
func (p *ResourceSetInputProvider) Requests() map[string]string {
	return map[string]string{ForceRequestAnnotation: p.Annotations[ForceRequestAnnotation]}
}

// Limit returns the maximum number of input sets.
func (p *ResourceSetInputProvider) Limit() int {
	if f := p.Spec.Filter; f != nil && f.Limit > 0 {
		return f.Limit
	}
	return DefaultFilterLimit
}
