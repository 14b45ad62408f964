package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ImageRepositoryKind is the kind's name.
const ImageRepositoryKind = "ImageRepository"

// defaultScanTimeout is that of a scan of a repository that sets none.
const defaultScanTimeout = time.Minute

// ImageRepositorySpec says which repository of images is scanned, how, and who may use what is found.
type ImageRepositorySpec struct {
	// Image is the name of the repository, such as ghcr.io/org/app; without scheme, tag or digest.
	// +required
	Image string `json:"image"`

	// Interval at which the registry is asked for tags.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// Timeout of one scan; 60s when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// SecretRef references the Secret of type kubernetes.io/dockerconfigjson with the credentials of the registry.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName is the ServiceAccount whose pull secrets or, with a cloud provider, whose identity is used.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef references the Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef references the Secret with the address, username and password of the proxy.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Suspend stops scanning; what was found last stays.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom selects the namespaces, by label, whose policies may refer to this repository beside those of its own.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	// ExclusionList holds regular expressions; tags that one of them matches are left out.
	// +kubebuilder:validation:MaxItems=25
	// +kubebuilder:default={"^.*\\.sig$"}
	// +optional
	ExclusionList []string `json:"exclusionList,omitempty"`

	// Provider whose authentication is used.
	// +kubebuilder:validation:Enum=generic;aws;azure;gcp
	// +kubebuilder:default:=generic
	// +optional
	Provider string `json:"provider,omitempty"`

	// Insecure connects to the registry over plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	meta.Gated `json:",inline"`
}

// ScanResult tells what a scan found.
type ScanResult struct {
	// Revision is a digest over the tags; it changes when they do.
	// +optional
	Revision string `json:"revision,omitempty"`

	// TagCount is how many tags there are, without the excluded ones.
	// +required
	TagCount int `json:"tagCount"`

	// ScanTime is when the scan ended.
	// +optional
	ScanTime meta.Time `json:"scanTime,omitempty"`

	// LatestTags are the last ten tags in reverse alphabetical order; an overview, not an order by age or version.
	// +optional
	LatestTags []string `json:"latestTags,omitempty"`
}

// ImageRepositoryStatus is what was observed of the repository.
type ImageRepositoryStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// CanonicalImageName is the name of the image with the registry and path that the short name stands for.
	// +optional
	CanonicalImageName string `json:"canonicalImageName,omitempty"`

	// LastScanResult tells what the last scan found.
	// +optional
	LastScanResult *ScanResult `json:"lastScanResult,omitempty"`

	// ObservedExclusionList is the exclusion list of the last scan.
	// +optional
	ObservedExclusionList []string `json:"observedExclusionList,omitempty"`
}

// ImageRepository keeps the tags of a repository of images at hand.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=imgrepo;imagerepo
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Tags",type=string,JSONPath=`.status.lastScanResult.tagCount`
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Last scan",type=string,JSONPath=`.status.lastScanResult.scanTime`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type ImageRepository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImageRepositorySpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ImageRepositoryStatus `json:"status,omitempty"`
}

// ImageRepositoryList is a list of repositories.
// +kubebuilder:object:root=true
type ImageRepositoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImageRepository `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (r *ImageRepository) CommonStatus() *meta.Status { return &r.Status.Status }

// GateRefs returns the gates that the object names.
func (r *ImageRepository) GateRefs() []meta.GateReference { return r.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (r *ImageRepository) Held() *meta.Held { return &r.Status.Held }

// Schedule returns when and for how long the repository is scanned.
func (r *ImageRepository) Schedule() meta.Schedule {
	s := meta.Schedule{Interval: r.Spec.Interval.Duration, Timeout: defaultScanTimeout, Suspended: r.Spec.Suspend}
	if r.Spec.Timeout != nil {
		s.Timeout = r.Spec.Timeout.Duration
	}
	return s
}
