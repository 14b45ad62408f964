package v1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ReceiverKind is the kind's name.
const ReceiverKind = "Receiver"

// Types of receivers. The type determines how webhook requests are authenticated and parsed.
const (
	GenericReceiver     = "generic"
	GenericHMACReceiver = "generic-hmac"
	GenericOIDCReceiver = "generic-oidc"
	GitHubReceiver      = "github"
	GitLabReceiver      = "gitlab"
	BitbucketReceiver   = "bitbucket"
	HarborReceiver      = "harbor"
	DockerHubReceiver   = "dockerhub"
	QuayReceiver        = "quay"
	GCRReceiver         = "gcr"
	NexusReceiver       = "nexus"
	ACRReceiver         = "acr"
	CDEventsReceiver    = "cdevents"
)

// Actions of a webhook on gates.
const (
	OpenAction  = "open"
	CloseAction = "close"
)

// Reasons of the conditions of Receivers and, the first one, of Providers.
const (
	TokenNotFoundReason        = "TokenNotFound"
	InvalidCELExpressionReason = meta.InvalidCELExpressionReason
)

// DefaultAudience is the token audience of an OIDC provider that does not set one.
const DefaultAudience = "notification-controller"

// ReceiverPathPrefix is the prefix of every webhook path.
const ReceiverPathPrefix = "/hook/"

// AnyName as the name of a resource selects all objects of its kind in the namespace.
const AnyName = "*"

// defaultInterval is the interval of a Receiver or Provider that does not set one.
const defaultInterval = 10 * time.Minute

// ReceiverSpec defines which webhook requests are accepted and which objects they reconcile.
// +kubebuilder:validation:XValidation:rule="self.type != 'generic-oidc' || (has(self.oidcProviders) &&
// +>  size(self.oidcProviders) > 0)",message="oidcProviders is required when type is generic-oidc"
// +kubebuilder:validation:XValidation:rule="self.type == 'generic-oidc' || !has(self.oidcProviders) ||
// +>  size(self.oidcProviders) == 0",message="oidcProviders is for the type generic-oidc only"
// +kubebuilder:validation:XValidation:rule="self.type != 'generic-oidc' || !has(self.secretRef)",message="secretRef
// +>  must not be set when type is generic-oidc"
// +kubebuilder:validation:XValidation:rule="self.type == 'generic-oidc' || has(self.secretRef)",message="secretRef is
// +>  required, except when type is generic-oidc"
type ReceiverSpec struct {
	// Type of the sender. It determines how requests are authenticated and parsed.
	// +kubebuilder:validation:Enum=generic;generic-hmac;generic-oidc;github;gitlab;bitbucket;harbor;dockerhub;quay;
	// +> gcr;nexus;acr;cdevents
	// +required
	Type string `json:"type"`

	// Interval at which the Receiver and its Secret are reconciled. Defaults to 10m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:default="10m"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Events to handle, such as push for GitHub or "Push Hook" for GitLab. If empty, all events are handled.
	// +optional
	Events []string `json:"events,omitempty"`

	// Resources to reconcile on a request. Gates are opened or closed instead, as action says.
	// +required
	Resources []ReceiverResource `json:"resources"`

	// ResourceFilter is a CEL expression that must be true for a resource to be reconciled. Its variables are
	// res (the metadata of the resource), req (the body of the request) and, for generic-oidc, claims (the
	// claims of the token).
	// +optional
	ResourceFilter string `json:"resourceFilter,omitempty"`

	// SecretRef references the Secret with the token, in the namespace of the Receiver. For the type gcr, the
	// Secret must also hold the email of the service account and the audience of the Pub/Sub push
	// subscription.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// OIDCProviders whose tokens a generic-oidc Receiver accepts.
	// +listType=map
	// +listMapKey=issuerURL
	// +optional
	OIDCProviders []OIDCProvider `json:"oidcProviders,omitempty"`

	// Action on resources of the kind Gate.
	// +kubebuilder:validation:Enum=open;close
	// +optional
	Action string `json:"action,omitempty"`

	// Suspend stops handling requests.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ReceiverResource selects objects of a kind, by name or by label.
type ReceiverResource struct {
	// APIVersion of the kind. Only the group is used.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the objects.
	// +kubebuilder:validation:Enum=Bucket;GitRepository;Kustomization;HelmRelease;HelmChart;HelmRepository;
	// +> ImageRepository;ImagePolicy;ImageUpdateAutomation;OCIRepository;ArtifactGenerator;ExternalArtifact;Gate;
	// +> ResourceSetInputProvider;ClusterInputProvider
	// +required
	Kind string `json:"kind"`

	// Name of the object, or * for all objects that matchLabels selects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the objects. Defaults to the namespace of the Receiver.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// MatchLabels selects objects by label. It is required with the name *, and ignored with others.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// Filter is a CEL expression like spec.resourceFilter, for the objects of this entry. Both expressions
	// must be true.
	// +optional
	Filter string `json:"filter,omitempty"`
}

// OIDCProvider is a token issuer and the requirements on its tokens.
type OIDCProvider struct {
	// IssuerURL is the URL from which the keys of the provider are discovered. It must equal the iss claim of tokens.
	// +kubebuilder:validation:Pattern="^https?://"
	// +required
	IssuerURL string `json:"issuerURL"`

	// Audience that tokens must have. Defaults to notification-controller.
	// +optional
	Audience string `json:"audience,omitempty"`

	// Variables are evaluated in order. Each expression can use claims and the preceding variables.
	// Validations read the variables as vars.
	// +optional
	Variables []OIDCVariable `json:"variables,omitempty"`

	// Validations that must all be true for a token to be accepted.
	// +kubebuilder:validation:MinItems=1
	// +required
	Validations []OIDCValidation `json:"validations"`
}

// OIDCVariable is a named CEL expression over claims and vars.
type OIDCVariable struct {
	// Name of the variable in vars.
	// +required
	Name string `json:"name"`
	// Expression that returns the value.
	// +required
	Expression string `json:"expression"`
}

// OIDCValidation is a CEL expression over claims and vars that must be true.
type OIDCValidation struct {
	// Expression that returns true or false.
	// +required
	Expression string `json:"expression"`
	// Message to report when the expression is false.
	// +required
	Message string `json:"message"`
}

// ReceiverStatus is what was observed of the Receiver.
type ReceiverStatus struct {
	meta.Status `json:",inline"`

	// WebhookPath is the path at which requests are accepted.
	// +optional
	WebhookPath string `json:"webhookPath,omitempty"`

	// URL is the same path, for clients of v1beta1.
	// Deprecated: use webhookPath.
	// +optional
	URL string `json:"url,omitempty"`
}

// Receiver accepts webhook requests and triggers a reconcile of the objects that it selects.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-notifications
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> description=""
type Receiver struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ReceiverSpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status ReceiverStatus `json:"status,omitempty"`
}

// ReceiverList is a list of Receivers.
// +kubebuilder:object:root=true
type ReceiverList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Receiver `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (r *Receiver) CommonStatus() *meta.Status { return &r.Status.Status }

// Schedule returns when the Receiver is reconciled.
func (r *Receiver) Schedule() meta.Schedule {
	interval := cmp.Or(r.Spec.Interval, &meta.Duration{Duration: defaultInterval})
	return meta.Schedule{Interval: interval.Duration, Suspended: r.Spec.Suspend}
}

// SetWebhookPath sets the path in the status. An empty path clears it.
func (r *Receiver) SetWebhookPath(path string) { r.Status.WebhookPath, r.Status.URL = path, path }
