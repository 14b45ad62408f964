package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// ImageUpdateAutomationKind is the kind's name.
const ImageUpdateAutomationKind = "ImageUpdateAutomation"

// UpdateSetters is the strategy that sets fields which a comment marks, and those that are bound.
const UpdateSetters = "Setters"

// Types of signing keys.
const (
	SigningKeyGPG = "gpg"
	SigningKeySSH = "ssh"
)

// ImageUpdateAutomationSpec says in which repository images are updated, by which policies, and how that is committed.
type ImageUpdateAutomationSpec struct {
	// SourceRef names the GitRepository that is checked out and pushed to.
	// +required
	SourceRef SourceReference `json:"sourceRef"`

	// GitSpec says what is checked out, committed and pushed.
	// +optional
	GitSpec *GitSpec `json:"git,omitempty"`

	// Interval at which policies are compared with the repository, beside when one of them changes.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// PolicySelector selects the policies by label; all of the namespace when unset.
	// +optional
	PolicySelector *metav1.LabelSelector `json:"policySelector,omitempty"`

	// Update says which files are updated, and how.
	// +kubebuilder:default={"strategy":"Setters"}
	// +optional
	Update *UpdateStrategy `json:"update,omitempty"`

	// Suspend stops updating.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Batch makes one commit of images that are released together.
	// +optional
	Batch *Batch `json:"batch,omitempty"`

	// PullRequest opens a request to merge the pushed branch, and keeps it up to date.
	// +optional
	PullRequest *PullRequest `json:"pullRequest,omitempty"`

	// Bindings set images where no comment marks them.
	// +kubebuilder:validation:MaxItems=500
	// +optional
	Bindings []Binding `json:"bindings,omitempty"`

	meta.Gated `json:",inline"`
}

// SourceReference names a source, maybe in another namespace.
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

	// Namespace of the source; that of the automation when unset.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// GitSpec says what is checked out, committed and pushed.
type GitSpec struct {
	// Checkout says what the update starts from; the reference of the GitRepository when unset.
	// +optional
	Checkout *GitCheckoutSpec `json:"checkout,omitempty"`

	// Commit says how the commit looks.
	// +required
	Commit CommitSpec `json:"commit"`

	// Push says where the commit goes; to the branch that was checked out when unset.
	// +optional
	Push *PushSpec `json:"push,omitempty"`
}

// GitCheckoutSpec says what an update starts from.
type GitCheckoutSpec struct {
	// Reference to check out.
	// +required
	Reference sourcev1.GitRepositoryRef `json:"ref"`
}

// CommitSpec says how a commit looks.
type CommitSpec struct {
	// Author of the commit.
	// +required
	Author CommitUser `json:"author"`

	// SigningKey that the commit is signed by; it is not signed when unset.
	// +optional
	SigningKey *SigningKey `json:"signingKey,omitempty"`

	// MessageTemplate is the commit's message as a Go template.
	// +optional
	MessageTemplate string `json:"messageTemplate,omitempty"`

	// MessageTemplateValues are what .Values has in the template.
	// +optional
	MessageTemplateValues map[string]string `json:"messageTemplateValues,omitempty"`
}

// CommitUser is who a commit is by.
type CommitUser struct {
	// Name of the author.
	// +optional
	Name string `json:"name,omitempty"`

	// Email of the author.
	// +required
	Email string `json:"email"`
}

// SigningKey names the key that commits are signed by.
type SigningKey struct {
	// SecretRef names the Secret with the key: git.asc and maybe passphrase of an OpenPGP key, identity and
	// maybe password of an SSH key.
	// +required
	SecretRef meta.LocalObjectReference `json:"secretRef"`

	// Type of the key; gpg when unset.
	// +kubebuilder:validation:Enum=gpg;ssh
	// +optional
	Type string `json:"type,omitempty"`
}

// PushSpec says where a commit goes.
type PushSpec struct {
	// Branch to push to; it is made where it is not there.
	// +optional
	Branch string `json:"branch,omitempty"`

	// Refspec to push beside the branch, or in its place.
	// +optional
	Refspec string `json:"refspec,omitempty"`

	// Options that are sent with the push.
	// +optional
	Options map[string]string `json:"options,omitempty"`
}

// UpdateStrategy says which files are updated, and how.
type UpdateStrategy struct {
	// Strategy by which fields are found.
	// +kubebuilder:validation:Enum=Setters
	// +kubebuilder:default=Setters
	// +optional
	Strategy string `json:"strategy,omitempty"`

	// Path of the directory whose files are updated; the whole repository when unset.
	// +optional
	Path string `json:"path,omitempty"`
}

// Batch says how long an update waits for others, so that they become one commit.
type Batch struct {
	// Quiet is how long no policy may have changed before the commit is made; 0 when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Quiet *meta.Duration `json:"quiet,omitempty"`

	// AtMost is how long the first of them waits however many follow; ten times quiet when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	AtMost *meta.Duration `json:"atMost,omitempty"`

	// PerPolicy makes one commit a policy.
	// +optional
	PerPolicy bool `json:"perPolicy,omitempty"`
}

// PullRequest says how the request looks that asks to merge an update.
type PullRequest struct {
	// Provider that hosts the repository.
	// +kubebuilder:validation:Enum=github;gitlab;gitea;bitbucket;bitbucketserver;azuredevops
	// +required
	Provider string `json:"provider"`

	// Branch that an update is pushed to, as a Go template with the values of the commit's message; one of
	// the automation's name when unset.
	// +optional
	Branch string `json:"branch,omitempty"`

	// Title of the request as a Go template; the first line of the commit's message when unset.
	// +optional
	Title string `json:"title,omitempty"`

	// Body of the request as a Go template; the commit's message when unset.
	// +optional
	Body string `json:"body,omitempty"`

	// SecretRef names the Secret with the token that the request is opened by; the GitRepository's when unset.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// Labels of the request, where the provider has them.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Labels []string `json:"labels,omitempty"`
}

// Binding sets the image of a policy in a workload, or in a file of Helm values.
// +kubebuilder:validation:XValidation:rule="has(self.workload) != has(self.valuesFile)",message="exactly one of
// +>  workload and valuesFile must be set"
type Binding struct {
	// PolicyRef names the policy, in the automation's namespace.
	// +required
	PolicyRef meta.LocalObjectReference `json:"policyRef"`

	// Workload whose container has the image, found in the files by its identity.
	// +optional
	Workload *WorkloadContainer `json:"workload,omitempty"`

	// ValuesFile with the image.
	// +optional
	ValuesFile *ValuesFile `json:"valuesFile,omitempty"`
}

// WorkloadContainer names a container of a workload.
type WorkloadContainer struct {
	// Kind of the workload, such as Deployment.
	// +kubebuilder:validation:MinLength=1
	// +required
	Kind string `json:"kind"`

	// Name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`

	// Namespace of the workload as the files have it; any when unset.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Container that has the image, init containers included; all whose image is of the policy's repository when unset.
	// +optional
	Container string `json:"container,omitempty"`
}

// ValuesFile names what holds an image in a file of Helm values. Paths are keys with dots between them.
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

	// Registry is the path of the image's registry, where the name stands without it.
	// +optional
	Registry string `json:"registry,omitempty"`

	// Repository is the path of the image's name.
	// +optional
	Repository string `json:"repository,omitempty"`

	// Tag is the path of the image's tag.
	// +optional
	Tag string `json:"tag,omitempty"`

	// Digest is the path of the image's digest.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// ImageUpdateAutomationStatus is what was observed of the automation.
type ImageUpdateAutomationStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// LastAutomationRunTime is when the automation ran last.
	// +optional
	LastAutomationRunTime *meta.Time `json:"lastAutomationRunTime,omitempty"`

	// LastPushCommit is the commit that was pushed last.
	// +optional
	LastPushCommit string `json:"lastPushCommit,omitempty"`

	// LastPushTime is when it was pushed.
	// +optional
	LastPushTime *meta.Time `json:"lastPushTime,omitempty"`

	// ObservedPolicies are the images that the policies had, by name of the policy.
	// +optional
	ObservedPolicies map[string]ImageRef `json:"observedPolicies,omitempty"`

	// ObservedSourceRevision is the revision that was checked out.
	// +optional
	ObservedSourceRevision string `json:"observedSourceRevision,omitempty"`

	// PullRequest is the address of the request that was opened last.
	// +optional
	PullRequest string `json:"pullRequest,omitempty"`
}

// ImageUpdateAutomation commits the images that policies choose to git.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=iua;imgupd;imgauto
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

// GateRefs returns the gates that the object names.
func (a *ImageUpdateAutomation) GateRefs() []meta.GateReference { return a.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (a *ImageUpdateAutomation) Held() *meta.Held { return &a.Status.Held }

// Schedule returns when the automation runs by itself.
func (a *ImageUpdateAutomation) Schedule() meta.Schedule {
	return meta.Schedule{Interval: a.Spec.Interval.Duration, Suspended: a.Spec.Suspend}
}
