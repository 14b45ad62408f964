package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ImageRepositoryKind is the kind's name.
const ImageRepositoryKind = "ImageRepository"

// defaultScanTimeout is the scan timeout of a repository that does not set one.
const defaultScanTimeout = time.Minute

// ImageRepositorySpec defines which image repository is scanned, how, and which namespaces may use the results.
type ImageRepositorySpec struct {
	// Image is the name of the repository without scheme, tag or digest, such as ghcr.io/org/app.
	// +required
	Image string `json:"image"`

	// Interval at which the tags are scanned.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// Timeout of one scan. Defaults to 60s.
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

	// Suspend stops scanning. The last results are kept.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom selects namespaces by label whose policies may reference this repository, in addition to
	// those in its own namespace.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	// ExclusionList holds regular expressions. Tags that match one of them are ignored.
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

// ScanResult is the result of a scan.
type ScanResult struct {
	// Revision is a digest of the tags. It changes when the tags change.
	// +optional
	Revision string `json:"revision,omitempty"`

	// TagCount is the number of tags, without excluded tags.
	// +required
	TagCount int `json:"tagCount"`

	// ScanTime is the time at which the scan ended.
	// +optional
	ScanTime meta.Time `json:"scanTime,omitempty"`

	// LatestTags are the last ten tags in reverse alphabetical order. They are an overview, and are not
	// ordered by age or version.
	// +optional
	LatestTags []string `json:"latestTags,omitempty"`
}

// ImageRepositoryStatus is what was observed of the repository.
type ImageRepositoryStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// CanonicalImageName is the full name of the image, including registry and path.
	// +optional
	CanonicalImageName string `json:"canonicalImageName,omitempty"`

	// LastScanResult is the result of the last scan.
	// +optional
	LastScanResult *ScanResult `json:"lastScanResult,omitempty"`

	// ObservedExclusionList is the exclusion list of the last scan.
	// +optional
	ObservedExclusionList []string `json:"observedExclusionList,omitempty"`
}

// ImageRepository scans the tags of an image repository.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=imgrepo;imagerepo,categories=all;fluxcd;fluxcd-images
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

// GateRefs returns the gates that the object references.
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
