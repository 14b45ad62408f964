package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// ImageUpdateAutomationKind is the kind's name.
const ImageUpdateAutomationKind = "ImageUpdateAutomation"

// UpdateSetters is the strategy that sets the fields marked by a comment, and the fields of bindings.
const UpdateSetters = "Setters"

// Types of signing keys.
const (
	SigningKeyGPG = "gpg"
	SigningKeySSH = "ssh"
)

// ImageUpdateAutomationSpec defines the repository in which images are updated, the policies that select the
// images, and how changes are committed.
type ImageUpdateAutomationSpec struct {
	// SourceRef references the GitRepository to check out and push to.
	// +required
	SourceRef SourceReference `json:"sourceRef"`

	// GitSpec defines what is checked out, committed and pushed.
	// +optional
	GitSpec *GitSpec `json:"git,omitempty"`

	// Interval at which the repository is compared with the policies. A change of a policy also triggers a comparison.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// PolicySelector selects the policies by label. If unset, all policies of the namespace are used.
	// +optional
	PolicySelector *metav1.LabelSelector `json:"policySelector,omitempty"`

	// Update defines which files are updated, and how.
	// +kubebuilder:default={"strategy":"Setters"}
	// +optional
	Update *UpdateStrategy `json:"update,omitempty"`

	// PolicyChangeDelay is how long a change of the selected policies waits for others before it is committed. All
	// changes of this time are one commit. A reconcile request does not wait.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	PolicyChangeDelay *meta.Duration `json:"policyChangeDelay,omitempty"`

	// Suspend stops updating.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Batch combines images that are released together into one commit.
	// +optional
	Batch *Batch `json:"batch,omitempty"`

	// PullRequest opens a pull request for the pushed branch, and keeps it up to date.
	// +optional
	PullRequest *PullRequest `json:"pullRequest,omitempty"`

	// Bindings set images in fields that no comment marks.
	// +kubebuilder:validation:MaxItems=500
	// +optional
	Bindings []Binding `json:"bindings,omitempty"`

	meta.Gated `json:",inline"`
}

// SourceReference references a source, possibly in another namespace.
type SourceReference struct {
	// APIVersion of the source.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the source.
	// +kubebuilder:validation:Enum=GitRepository
	// +kubebuilder:default=GitRepository
	// +required
	Kind string `json:"kind"`

	// Name of the source.
	// +required
	Name string `json:"name"`

	// Namespace of the source. Defaults to the namespace of the automation.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// GitSpec defines what is checked out, committed and pushed.
type GitSpec struct {
	// Checkout defines what the update starts from. Defaults to the reference of the GitRepository.
	// +optional
	Checkout *GitCheckoutSpec `json:"checkout,omitempty"`

	// Commit defines the author, message and signature of the commit.
	// +required
	Commit CommitSpec `json:"commit"`

	// Push defines where the commit is pushed. Defaults to the branch that was checked out.
	// +optional
	Push *PushSpec `json:"push,omitempty"`
}

// GitCheckoutSpec defines what an update starts from.
type GitCheckoutSpec struct {
	// Reference to check out.
	// +required
	Reference sourcev1.GitRepositoryRef `json:"ref"`
}

// CommitSpec defines the author, message and signature of a commit.
type CommitSpec struct {
	// Author of the commit.
	// +required
	Author CommitUser `json:"author"`

	// SigningKey that the commit is signed with. If unset, the commit is not signed.
	// +optional
	SigningKey *SigningKey `json:"signingKey,omitempty"`

	// MessageTemplate is the commit message, as a Go template.
	// +optional
	MessageTemplate string `json:"messageTemplate,omitempty"`

	// MessageTemplateValues are available as .Values in the template.
	// +optional
	MessageTemplateValues map[string]string `json:"messageTemplateValues,omitempty"`
}

// CommitUser is the author of a commit.
type CommitUser struct {
	// Name of the author.
	// +optional
	Name string `json:"name,omitempty"`

	// Email of the author.
	// +required
	Email string `json:"email"`
}

// SigningKey references the key that commits are signed with.
type SigningKey struct {
	// SecretRef references the Secret with the key: git.asc and optionally passphrase for an OpenPGP key, or
	// identity and optionally password for an SSH key.
	// +required
	SecretRef meta.LocalObjectReference `json:"secretRef"`

	// Type of the key. Defaults to gpg.
	// +kubebuilder:validation:Enum=gpg;ssh
	// +optional
	Type string `json:"type,omitempty"`
}

// PushSpec defines where a commit is pushed.
type PushSpec struct {
	// Branch to push to. It is created if it does not exist.
	// +optional
	Branch string `json:"branch,omitempty"`

	// Refspec to push, in addition to the branch or instead of it. It does not start with + or with a colon: a push
	// never overwrites and never deletes a reference.
	// +kubebuilder:validation:Pattern="^$|^[^+:]"
	// +optional
	Refspec string `json:"refspec,omitempty"`

	// Options that are sent with the push.
	// +optional
	Options map[string]string `json:"options,omitempty"`
}

// UpdateStrategy defines which files are updated, and how.
type UpdateStrategy struct {
	// Strategy to find the fields.
	// +kubebuilder:validation:Enum=Setters
	// +kubebuilder:default=Setters
	// +optional
	Strategy string `json:"strategy,omitempty"`

	// Path of the directory whose files are updated. Defaults to the root of the repository.
	// +optional
	Path string `json:"path,omitempty"`
}

// Batch defines how long an update waits for other updates, to combine them into one commit.
type Batch struct {
	// Quiet is how long all policies must be unchanged before the commit is created. Defaults to 0.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Quiet *meta.Duration `json:"quiet,omitempty"`

	// AtMost is the maximum time that the first update waits. Defaults to ten times quiet.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	AtMost *meta.Duration `json:"atMost,omitempty"`

	// PerPolicy creates one commit for each policy.
	// +optional
	PerPolicy bool `json:"perPolicy,omitempty"`
}

// PullRequest defines the pull request of an update.
type PullRequest struct {
	// Provider that hosts the repository.
	// +kubebuilder:validation:Enum=github;gitlab;gitea;bitbucket;bitbucketserver;azuredevops
	// +required
	Provider string `json:"provider"`

	// Branch that an update is pushed to, as a Go template with the same values as the commit message. If
	// unset, the name is derived from the name of the automation.
	// +optional
	Branch string `json:"branch,omitempty"`

	// Title of the pull request, as a Go template. Defaults to the first line of the commit message.
	// +optional
	Title string `json:"title,omitempty"`

	// Body of the pull request, as a Go template. Defaults to the commit message.
	// +optional
	Body string `json:"body,omitempty"`

	// SecretRef references the Secret with the token that is used to open the pull request. Defaults to the
	// Secret of the GitRepository.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Labels of the pull request, if the provider supports them.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Labels []string `json:"labels,omitempty"`
}

// Binding sets the image of a policy in a workload, or in a Helm values file.
// +kubebuilder:validation:XValidation:rule="has(self.workload) != has(self.valuesFile)",message="exactly one of
// +>  workload and valuesFile must be set"
type Binding struct {
	// PolicyRef references the policy, in the namespace of the automation.
	// +required
	PolicyRef meta.LocalObjectReference `json:"policyRef"`

	// Workload whose container uses the image. It is found in the files by kind, name and namespace.
	// +optional
	Workload *WorkloadContainer `json:"workload,omitempty"`

	// ValuesFile that contains the image.
	// +optional
	ValuesFile *ValuesFile `json:"valuesFile,omitempty"`
}

// WorkloadContainer identifies a container of a workload.
type WorkloadContainer struct {
	// Kind of the workload, such as Deployment.
	// +kubebuilder:validation:MinLength=1
	// +required
	Kind string `json:"kind"`

	// Name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`

	// Namespace of the workload in the files. If unset, any namespace matches.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Container that uses the image; it can be an init container. If unset, all containers are updated whose
	// image is from the repository of the policy.
	// +optional
	Container string `json:"container,omitempty"`
}

// ValuesFile identifies the fields of an image in a Helm values file. Paths are keys separated by dots.
// +kubebuilder:validation:XValidation:rule="has(self.path) || has(self.repository) || has(self.tag) ||
// +>  has(self.digest)",message="one of path, repository, tag and digest must be set"
type ValuesFile struct {
	// File relative to the root of the repository.
	// +kubebuilder:validation:MinLength=1
	// +required
	File string `json:"file"`

	// Path of a whole image reference, such as app.image.
	// +optional
	Path string `json:"path,omitempty"`

	// Registry is the path of the registry of the image, if it is a separate field.
	// +optional
	Registry string `json:"registry,omitempty"`

	// Repository is the path of the name of the image.
	// +optional
	Repository string `json:"repository,omitempty"`

	// Tag is the path of the tag of the image.
	// +optional
	Tag string `json:"tag,omitempty"`

	// Digest is the path of the digest of the image.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// ImageUpdateAutomationStatus is what was observed of the automation.
type ImageUpdateAutomationStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// LastAutomationRunTime is the time of the last run of the automation.
	// +optional
	LastAutomationRunTime *meta.Time `json:"lastAutomationRunTime,omitempty"`

	// LastPushCommit is the last pushed commit.
	// +optional
	LastPushCommit string `json:"lastPushCommit,omitempty"`

	// LastPushTime is the time of the last push.
	// +optional
	LastPushTime *meta.Time `json:"lastPushTime,omitempty"`

	// ObservedPolicies are the latest images of the policies at the last run, by policy name.
	// +optional
	ObservedPolicies map[string]ImageRef `json:"observedPolicies,omitempty"`

	// ObservedSourceRevision is the revision that was checked out.
	// +optional
	ObservedSourceRevision string `json:"observedSourceRevision,omitempty"`

	// PullRequest is the URL of the last opened pull request.
	// +optional
	PullRequest string `json:"pullRequest,omitempty"`
}

// ImageUpdateAutomation commits the images that policies select to a git repository.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=iua;imgupd;imgauto,categories=all;fluxcd;fluxcd-images
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Last run",type=string,JSONPath=`.status.lastAutomationRunTime`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type ImageUpdateAutomation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImageUpdateAutomationSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ImageUpdateAutomationStatus `json:"status,omitempty"`
}

// ImageUpdateAutomationList is a list of automations.
// +kubebuilder:object:root=true
type ImageUpdateAutomationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageUpdateAutomation `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (a *ImageUpdateAutomation) CommonStatus() *meta.Status { return &a.Status.Status }

// GateRefs returns the gates that the object references.
func (a *ImageUpdateAutomation) GateRefs() []meta.GateReference { return a.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (a *ImageUpdateAutomation) Held() *meta.Held { return &a.Status.Held }

// Schedule returns when the automation runs.
func (a *ImageUpdateAutomation) Schedule() meta.Schedule {
	return meta.Schedule{Interval: a.Spec.Interval.Duration, Suspended: a.Spec.Suspend}
}
