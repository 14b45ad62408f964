package v1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ReceiverKind is the kind's name.
const ReceiverKind = "Receiver"

// Types of receivers: who sends the webhooks, and so how they are checked.
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

// What a webhook does to gates.
const (
	OpenAction  = "open"
	CloseAction = "close"
)

// Reasons of the conditions of a Receiver.
const (
	TokenNotFoundReason        = "TokenNotFound"
	InvalidCELExpressionReason = meta.InvalidCELExpressionReason
)

// DefaultAudience is the audience of the tokens of an OIDC provider that sets none.
const DefaultAudience = "notification-controller"

// ReceiverPathPrefix is what the path of every webhook starts with.
const ReceiverPathPrefix = "/hook/"

// AnyName as the name of a resource stands for all of its kind in the namespace.
const AnyName = "*"

// defaultInterval is how often a Receiver is reconciled that sets no interval.
const defaultInterval = 10 * time.Minute

// ReceiverSpec says whose webhooks are taken, and what they wake.
// +kubebuilder:validation:XValidation:rule="self.type != 'generic-oidc' || (has(self.oidcProviders) &&
// +>  size(self.oidcProviders) > 0)",message="oidcProviders is required when type is generic-oidc"
// +kubebuilder:validation:XValidation:rule="self.type == 'generic-oidc' || !has(self.oidcProviders) ||
// +>  size(self.oidcProviders) == 0",message="oidcProviders is for the type generic-oidc only"
// +kubebuilder:validation:XValidation:rule="self.type != 'generic-oidc' || !has(self.secretRef)",message="secretRef
// +>  must not be set when type is generic-oidc"
// +kubebuilder:validation:XValidation:rule="self.type == 'generic-oidc' || has(self.secretRef)",message="secretRef is
// +>  required, except when type is generic-oidc"
type ReceiverSpec struct {
	// Type of the sender, by which requests are checked and read.
	// +kubebuilder:validation:Enum=generic;generic-hmac;generic-oidc;github;gitlab;bitbucket;harbor;dockerhub;quay;
	// +> gcr;nexus;acr;cdevents
	// +required
	Type string `json:"type"`

	// Interval at which the Receiver is reconciled with its Secret; 10m when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:default="10m"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Events that are acted on, such as push for GitHub or "Push Hook" for GitLab; all when empty.
	// +optional
	Events []string `json:"events,omitempty"`

	// Resources that a request wakes, or opens and closes where they are gates.
	// +required
	Resources []ReceiverResource `json:"resources"`

	// ResourceFilter is a CEL expression over res, the metadata of a resource, req, the body of the request,
	// and for generic-oidc claims, those of the token. A resource for which it is false is left alone.
	// +optional
	ResourceFilter string `json:"resourceFilter,omitempty"`

	// SecretRef names the Secret with the token, in the Receiver's namespace. The type gcr also needs the
	// email of the service account and the audience that the Pub/Sub subscription pushes with.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// OIDCProviders whose tokens a generic-oidc Receiver accepts.
	// +optional
	OIDCProviders []OIDCProvider `json:"oidcProviders,omitempty"`

	// Action is what a request does to resources of the kind Gate.
	// +kubebuilder:validation:Enum=open;close
	// +optional
	Action string `json:"action,omitempty"`

	// Suspend stops the handling of requests.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ReceiverResource selects objects of a kind, by name or by label.
type ReceiverResource struct {
	// APIVersion of the kind; only its group counts.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the objects.
	// +kubebuilder:validation:Enum=Bucket;GitRepository;Kustomization;HelmRelease;HelmChart;HelmRepository;
	// +> ImageRepository;ImagePolicy;ImageUpdateAutomation;OCIRepository;ArtifactGenerator;ExternalArtifact;Gate
	// +required
	Kind string `json:"kind"`

	// Name of the object; * for all, or all with matchLabels.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Namespace of the objects; the Receiver's when unset.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// MatchLabels that the objects have, with the name *.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// Filter is a CEL expression as spec.resourceFilter, for the objects of this entry; both must hold.
	// +optional
	Filter string `json:"filter,omitempty"`
}

// OIDCProvider is an issuer of tokens, and what must be true of them.
type OIDCProvider struct {
	// IssuerURL is where the provider's keys are found, and the iss claim of its tokens.
	// +kubebuilder:validation:Pattern="^https?://"
	// +required
	IssuerURL string `json:"issuerURL"`

	// Audience that tokens must be for; notification-controller when unset.
	// +optional
	Audience string `json:"audience,omitempty"`

	// Variables are evaluated in order over claims and the vars before them; validations read them as vars.
	// +optional
	Variables []OIDCVariable `json:"variables,omitempty"`

	// Validations must all hold.
	// +kubebuilder:validation:MinItems=1
	// +required
	Validations []OIDCValidation `json:"validations"`
}

// OIDCVariable is a named CEL expression over claims and vars.
type OIDCVariable struct {
	// Name by which vars has the value.
	// +required
	Name string `json:"name"`
	// Expression that gives the value.
	// +required
	Expression string `json:"expression"`
}

// OIDCValidation is a CEL expression over claims and vars that must hold.
type OIDCValidation struct {
	// Expression that gives true or false.
	// +required
	Expression string `json:"expression"`
	// Message for when it does not hold.
	// +required
	Message string `json:"message"`
}

// ReceiverStatus is what was observed of the Receiver.
type ReceiverStatus struct {
	meta.Status `json:",inline"`

	// WebhookPath is the path at which requests are taken.
	// +optional
	WebhookPath string `json:"webhookPath,omitempty"`

	// URL is the same path, for clients of v1beta1.
	// Deprecated: use webhookPath.
	// +optional
	URL string `json:"url,omitempty"`
}

// Receiver takes webhooks, and wakes what they are about.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
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

// SetWebhookPath writes the path into the status; empty while there is none.
func (r *Receiver) SetWebhookPath(path string) { r.Status.WebhookPath, r.Status.URL = path, path }
