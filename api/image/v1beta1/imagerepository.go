package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ImageRepositorySpec is the legacy form of the current version's.
type ImageRepositorySpec struct {
	// Image is the name of the repository, without tag.
	// +optional
	Image string `json:"image,omitempty"`

	// Interval at which the tags are scanned.
	// +optional
	Interval meta.Duration `json:"interval,omitempty"`

	// Timeout of one scan.
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// SecretRef references the Secret with the credentials of the registry.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName is the ServiceAccount whose pull secrets are used.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef references the Secret with the certificates.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// Suspend stops scanning.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom selects the namespaces whose policies may reference this repository.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	// ExclusionList holds regular expressions of tags to ignore.
	// +optional
	ExclusionList []string `json:"exclusionList,omitempty"`

	meta.Gated `json:",inline"`
}

// ScanResult is the result of a scan.
type ScanResult struct {
	// TagCount is the number of tags.
	// +required
	TagCount int `json:"tagCount"`

	// ScanTime is the time at which the scan ended.
	// +optional
	ScanTime meta.Time `json:"scanTime,omitempty"`
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
}

// ImageRepository is the legacy form of the current version's kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=imgrepo;imagerepo,categories=all;fluxcd;fluxcd-images
// +kubebuilder:printcolumn:name="Last scan",type=string,JSONPath=`.status.lastScanResult.scanTime`
// +kubebuilder:printcolumn:name="Tags",type=string,JSONPath=`.status.lastScanResult.tagCount`
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
