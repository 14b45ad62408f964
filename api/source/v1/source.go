package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Source is an object whose status has an artifact.
//
// +kubebuilder:object:generate=false
type Source interface {
	metav1.Object
	runtime.Object
	CommonStatus() *meta.Status
	Schedule() meta.Schedule
	GetArtifact() *meta.Artifact
}

// NewSource returns an empty object of a kind whose artifacts other kinds can build from; nil for other kinds.
func NewSource(kind string) Source {
	switch kind {
	case GitRepositoryKind:
		return &GitRepository{}
	case OCIRepositoryKind:
		return &OCIRepository{}
	case BucketKind:
		return &Bucket{}
	case HelmChartKind:
		return &HelmChart{}
	case ExternalArtifactKind:
		return &ExternalArtifact{}
	default:
		return nil
	}
}

// Condition types of sources, in addition to Ready, Reconciling and Stalled. Conditions whose names end in
// Failed, Outdated or Unavailable exist only while they are true.
const (
	ArtifactInStorageCondition      = "ArtifactInStorage"
	ArtifactOutdatedCondition       = "ArtifactOutdated"
	BuildFailedCondition            = "BuildFailed"
	FetchFailedCondition            = "FetchFailed"
	IncludeUnavailableCondition     = "IncludeUnavailable"
	SourceVerifiedCondition         = "SourceVerified"
	StorageOperationFailedCondition = "StorageOperationFailed"
)

// Condition reasons of sources, in addition to those of package meta.
const (
	ArchiveOperationFailedReason = "ArchiveOperationFailed"
	ArtifactUpToDateReason       = "ArtifactUpToDate"
	CacheOperationFailedReason   = "CacheOperationFailed"
	InvalidPathReason            = "InvalidPath"
	NewArtifactReason            = "NewArtifact" // of events
	// NamesDifferInCaseReason is the reason of events about artifacts with two such names in one directory.
	NamesDifferInCaseReason     = "NamesDifferInCase"
	NewRevisionReason           = "NewRevision"
	NoSourceArtifactReason      = "NoSourceArtifact"
	ReadOperationFailedReason   = "ReadOperationFailed"
	SourceUnavailableReason     = "SourceUnavailable"
	UnsupportedSourceKindReason = "UnsupportedSourceKind"
	VerificationErrorReason     = "VerificationError"

	BucketOperationFailedReason        = "BucketOperationFailed"
	BucketOperationSucceededReason     = "BucketOperationSucceeded"
	GitOperationSucceededReason        = "GitOperationSucceeded"
	InvalidCommitSignatureReason       = "InvalidCommitSignature"
	InvalidProviderConfigurationReason = "InvalidProviderConfiguration"
	InvalidSTSConfigurationReason      = "InvalidSTSConfiguration"
	InvalidTagSignatureReason          = "InvalidTagSignature"
	InvalidVerificationModeReason      = "InvalidVerificationMode"
	OCILayerOperationFailedReason      = "OCIArtifactLayerOperationFailed"
	OCIPullFailedReason                = "OCIArtifactPullFailed"

	ChartPackageErrorReason      = "ChartPackageError"
	ChartPackageSucceededReason  = "ChartPackageSucceeded"
	ChartPullErrorReason         = "ChartPullError"
	ChartPullSucceededReason     = "ChartPullSucceeded"
	ChartVerificationErrorReason = "ChartVerificationError"
	DependencyBuildErrorReason   = "DependencyBuildError"
	IndexationFailedReason       = "IndexationFailed"
	InvalidChartReferenceReason  = "InvalidChartReference"
	ValuesFilesErrorReason       = "ValuesFilesError"
)

// Providers whose authentication or workload identity is used. Each kind supports some of them.
const (
	ProviderGeneric = "generic"
	ProviderAWS     = "aws"
	ProviderAzure   = "azure"
	ProviderGCP     = "gcp"
	ProviderGitHub  = "github"
)

// Providers of signatures of OCI artifacts.
const (
	VerifyCosign   = "cosign"
	VerifyNotation = "notation"
)

// Verification defines who must have signed an OCI artifact.
type Verification struct {
	// Provider of the signatures.
	// +kubebuilder:validation:Enum=cosign;notation
	// +kubebuilder:default=cosign
	// +required
	Provider string `json:"provider"`

	// SecretRef references the Secret with the trusted public keys (cosign), or with the trust policy and the
	// certificates (notation). If unset, cosign verifies keyless signatures.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// MatchOIDCIdentity lists the accepted identities of keyless signers; one of them must match. If empty,
	// any signer that the trust root verifies is accepted.
	// +optional
	MatchOIDCIdentity []OIDCIdentityMatch `json:"matchOIDCIdentity,omitempty"`

	// TrustedRootSecretRef references the Secret with the trust root of a private Sigstore instance, in the
	// key trusted_root.json. Defaults to the public Sigstore instance.
	// +optional
	TrustedRootSecretRef *meta.LocalObjectReference `json:"trustedRootSecretRef,omitempty"`
}

// OIDCIdentityMatch matches the identity of a keyless signer.
type OIDCIdentityMatch struct {
	// Issuer of the signer's identity token, as a regular expression.
	// +required
	Issuer string `json:"issuer"`

	// Subject of the signer's identity token, as a regular expression.
	// +required
	Subject string `json:"subject"`
}

// schedule returns the schedule of a source. The default timeout is 60 seconds.
func schedule(interval meta.Duration, timeout *meta.Duration, suspended bool) meta.Schedule {
	s := meta.Schedule{Interval: interval.Duration, Timeout: time.Minute, Suspended: suspended}
	if timeout != nil {
		s.Timeout = timeout.Duration
	}
	return s
}
