package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// ImageUpdateJobKind is the kind's name.
const ImageUpdateJobKind = "ImageUpdateJob"

// ImageUpdateJobSpec requests one release.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a job runs once: make another one"
// +kubebuilder:validation:XValidation:rule="(has(self.images) && size(self.images) > 0) != (has(self.latest) &&
// +>  self.latest)",message="exactly one of images and latest must be set"
type ImageUpdateJobSpec struct {
	// AutomationRef references the ImageUpdateAutomation whose repository, commit and push settings are used.
	// +required
	AutomationRef meta.LocalObjectReference `json:"automationRef"`

	// Workloads whose images are updated. If empty, all workloads that use one of the images are updated.
	// +kubebuilder:validation:MaxItems=500
	// +optional
	Workloads []imagev1.WorkloadContainer `json:"workloads,omitempty"`

	// Images to update to, as name:tag, name@digest or name:tag@digest.
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	Images []string `json:"images,omitempty"`

	// Latest updates to the images that the policies of the automation currently select.
	// +optional
	Latest bool `json:"latest,omitempty"`

	// Author of the release, as "Name <email>". It is a claim of who created the object, which the commit names in its
	// message. Author and committer of the commit are those of the automation.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Author string `json:"author,omitempty"`

	// Reason for the release. It is added to the commit and its note.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Reason string `json:"reason,omitempty"`

	// DryRun reports the changes without committing them.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// ImageChange is one field that was, or would be, updated.
type ImageChange struct {
	// File relative to the root of the repository.
	// +required
	File string `json:"file"`

	// Line of the field, starting at 1.
	// +optional
	Line int32 `json:"line,omitempty"`

	// Object that contains the field, as <kind>/<namespace>/<name>.
	// +optional
	Object string `json:"object,omitempty"`

	// Container that the field belongs to.
	// +optional
	Container string `json:"container,omitempty"`

	// Policy that selected the image, as <namespace>/<name>.
	// +optional
	Policy string `json:"policy,omitempty"`

	// Old value of the field.
	// +required
	Old string `json:"old"`

	// New value of the field.
	// +required
	New string `json:"new"`
}

// ImageUpdateJobStatus is the observed state of the job.
type ImageUpdateJobStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// Commit that was pushed or, while completionTime is unset, that is about to be pushed. Unset after a dry
	// run, and if there was nothing to change.
	// +optional
	Commit string `json:"commit,omitempty"`

	// PullRequest is the URL of the pull request that contains the commit.
	// +optional
	PullRequest string `json:"pullRequest,omitempty"`

	// Changes lists the first 100 changes that were made or, in a dry run, would be made.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Changes []ImageChange `json:"changes,omitempty"`

	// Diff of the files as text, limited to 64 KiB.
	// +optional
	Diff string `json:"diff,omitempty"`

	// CompletionTime is the time at which the job ended, successfully or not.
	// +optional
	CompletionTime *meta.Time `json:"completionTime,omitempty"`
}

// ImageUpdateJob is a single release.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=iuj;imgjob
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Commit",type=string,JSONPath=`.status.commit`
// +kubebuilder:printcolumn:name="Author",type=string,JSONPath=`.spec.author`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type ImageUpdateJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImageUpdateJobSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ImageUpdateJobStatus `json:"status,omitempty"`
}

// ImageUpdateJobList is a list of jobs.
// +kubebuilder:object:root=true
type ImageUpdateJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageUpdateJob `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (j *ImageUpdateJob) CommonStatus() *meta.Status { return &j.Status.Status }

// GateRefs returns nil, because the gates of the automation apply to the job.
func (j *ImageUpdateJob) GateRefs() []meta.GateReference { return nil }

// Held returns the part of the status that lists the gates which apply to the object.
func (j *ImageUpdateJob) Held() *meta.Held { return &j.Status.Held }

// Schedule returns an empty schedule, because the job runs once.
func (j *ImageUpdateJob) Schedule() meta.Schedule { return meta.Schedule{} }
