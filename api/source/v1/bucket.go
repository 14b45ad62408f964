package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// BucketKind is the kind's name.
const BucketKind = "Bucket"

// Providers of the Security Token Service.
const (
	STSProviderAWS  = "aws"
	STSProviderLDAP = "ldap"
)

// BucketSpec defines the bucket and which of its objects are fetched.
// +kubebuilder:validation:XValidation:message="STS configuration is only supported for the 'aws' and 'generic'
// +>  providers",rule="self.provider == 'aws' || self.provider == 'generic' || !has(self.sts)"
// +kubebuilder:validation:XValidation:message="'aws' is the only STS provider of the 'aws' provider",
// +> rule="self.provider != 'aws' || !has(self.sts) || self.sts.provider == 'aws'"
// +kubebuilder:validation:XValidation:message="'ldap' is the only STS provider of the 'generic' provider",
// +> rule="self.provider != 'generic' || !has(self.sts) || self.sts.provider == 'ldap'"
// +kubebuilder:validation:XValidation:message="spec.sts.secretRef is not used by the 'aws' STS provider",
// +> rule="!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.secretRef)"
// +kubebuilder:validation:XValidation:message="spec.sts.certSecretRef is not used by the 'aws' STS provider",
// +> rule="!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.certSecretRef)"
// +kubebuilder:validation:XValidation:message="serviceAccountName can not be set with the 'generic' provider",
// +> rule="self.provider != 'generic' || !has(self.serviceAccountName)"
// +kubebuilder:validation:XValidation:message="set one of secretRef and serviceAccountName, not both",
// +> rule="!has(self.secretRef) || !has(self.serviceAccountName)"
type BucketSpec struct {
	// Provider whose protocol and authentication are used; generic is any S3-compatible provider.
	// +kubebuilder:validation:Enum=generic;aws;gcp;azure
	// +kubebuilder:default:=generic
	// +optional
	Provider string `json:"provider,omitempty"`

	// BucketName is the name of the bucket or, for Azure, of the container.
	// +required
	BucketName string `json:"bucketName"`

	// Endpoint is the address of the object store: host and port or, for Azure, a URL.
	// +required
	Endpoint string `json:"endpoint"`

	// STS configures temporary credentials from a Security Token Service.
	// +optional
	STS *BucketSTS `json:"sts,omitempty"`

	// Insecure connects to the endpoint over plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Region of the bucket.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]*$`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Region string `json:"region,omitempty"`

	// Prefix limits the artifact to objects whose keys start with it.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// SecretRef references the Secret with the credentials of the provider, such as accesskey and secretkey.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName is the ServiceAccount whose identity is used with the aws, azure and gcp providers.
	// Defaults to the identity of the controller.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef references the Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef references the Secret with the address, username and password of the proxy.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Interval at which the bucket is listed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +required
	Interval meta.Duration `json:"interval"`

	// Timeout of one fetch.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +kubebuilder:default="60s"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Ignore holds rules in .gitignore syntax that replace the default exclusions.
	// +optional
	Ignore *string `json:"ignore,omitempty"`

	// Suspend stops reconciling. The last artifact is still served.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// AccessFrom is accepted for manifests of v1beta1 and v1beta2.
	// Deprecated.
	// +optional
	AccessFrom *meta.AccessFrom `json:"accessFrom,omitempty"`

	meta.Gated `json:",inline"`
}

// BucketSTS configures temporary credentials from a Security Token Service.
type BucketSTS struct {
	// Provider of the service.
	// +kubebuilder:validation:Enum=aws;ldap
	// +required
	Provider string `json:"provider"`

	// Endpoint is the URL of the service.
	// +kubebuilder:validation:Pattern="^(http|https)://.*$"
	// +required
	Endpoint string `json:"endpoint"`

	// SecretRef references the Secret with the username and password for ldap.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef references the Secret with ca.crt and, for mutual TLS with the service, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`
}

// BucketStatus is what was observed of the bucket.
type BucketStatus struct {
	meta.Status `json:",inline"`
	meta.Held   `json:",inline"`

	// URL of the latest artifact.
	// +optional
	URL string `json:"url,omitempty"`

	// Artifact of the last fetched revision.
	// +optional
	Artifact *meta.Artifact `json:"artifact,omitempty"`

	// ObservedIgnore are the ignore rules that the artifact was built with.
	// +optional
	ObservedIgnore *string `json:"observedIgnore,omitempty"`
}

// Bucket makes the objects of a bucket available as an artifact.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-sources
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpoint`
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Gates",type="string",JSONPath=".status.gates",priority=1
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BucketSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status BucketStatus `json:"status,omitempty"`
}

// BucketList is a list of buckets.
// +kubebuilder:object:root=true
type BucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Bucket `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (b *Bucket) CommonStatus() *meta.Status { return &b.Status.Status }

// GateRefs returns the gates that the object references.
func (b *Bucket) GateRefs() []meta.GateReference { return b.Spec.Gates }

// Held returns the part of the status that lists the gates which apply to the object.
func (b *Bucket) Held() *meta.Held { return &b.Status.Held }

// GetArtifact returns the last artifact; nil if there is none.
func (b *Bucket) GetArtifact() *meta.Artifact { return b.Status.Artifact }

// SetArtifact sets the last artifact, and the URL of the newest artifact.
func (b *Bucket) SetArtifact(a *meta.Artifact) {
	b.Status.Artifact, b.Status.URL = a, a.LatestURL()
}

// Schedule returns when and for how long the bucket is reconciled.
func (b *Bucket) Schedule() meta.Schedule {
	return schedule(b.Spec.Interval, b.Spec.Timeout, b.Spec.Suspend)
}
