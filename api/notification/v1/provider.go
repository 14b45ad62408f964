package v1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ProviderKind is the kind's name.
const ProviderKind = "Provider"

// Types of providers. The type determines where events are sent, and in which format.
const (
	GenericProvider                   = "generic"
	GenericHMACProvider               = "generic-hmac"
	SlackProvider                     = "slack"
	DiscordProvider                   = "discord"
	MSTeamsProvider                   = "msteams"
	RocketProvider                    = "rocket"
	GoogleChatProvider                = "googlechat"
	WebexProvider                     = "webex"
	TelegramProvider                  = "telegram"
	LarkProvider                      = "lark"
	MastodonProvider                  = "mastodon"
	MatrixProvider                    = "matrix"
	ZulipProvider                     = "zulip"
	ZoomProvider                      = "zoom"
	OpsgenieProvider                  = "opsgenie"
	PagerDutyProvider                 = "pagerduty"
	AlertmanagerProvider              = "alertmanager"
	GrafanaProvider                   = "grafana"
	SentryProvider                    = "sentry"
	DataDogProvider                   = "datadog"
	IncidentIOProvider                = "incident.io"
	NATSProvider                      = "nats"
	GooglePubSubProvider              = "googlepubsub"
	AzureEventHubProvider             = "azureeventhub"
	OTELProvider                      = "otel"
	GitHubProvider                    = "github"
	GitLabProvider                    = "gitlab"
	GiteaProvider                     = "gitea"
	BitbucketProvider                 = "bitbucket"
	BitbucketServerProvider           = "bitbucketserver"
	AzureDevOpsProvider               = "azuredevops"
	GitHubDispatchProvider            = "githubdispatch"
	GitHubPullRequestCommentProvider  = "githubpullrequestcomment"
	GitLabMergeRequestCommentProvider = "gitlabmergerequestcomment"
	GiteaPullRequestCommentProvider   = "giteapullrequestcomment"
)

// defaultTimeout is the timeout of one attempt to send an event.
const defaultTimeout = 15 * time.Second

// ProviderSpec defines where and how events are sent.
// +kubebuilder:validation:XValidation:rule="self.type == 'github' || self.type == 'gitlab' || self.type == 'gitea' ||
// +>  self.type == 'bitbucketserver' || self.type == 'bitbucket' || self.type == 'azuredevops' ||
// +>  !has(self.commitStatusExpr)",message="spec.commitStatusExpr is for the types github, gitlab, gitea,
// +>  bitbucketserver, bitbucket and azuredevops only"
type ProviderSpec struct {
	// Type of the service that receives the events.
	// +kubebuilder:validation:Enum=slack;discord;msteams;rocket;generic;generic-hmac;github;gitlab;gitea;
	// +> giteapullrequestcomment;bitbucketserver;bitbucket;azuredevops;googlechat;googlepubsub;webex;sentry;
	// +> azureeventhub;telegram;lark;matrix;opsgenie;alertmanager;grafana;githubdispatch;githubpullrequestcomment;
	// +> gitlabmergerequestcomment;pagerduty;datadog;nats;zulip;otel;zoom;incident.io;mastodon
	// +required
	Type string `json:"type"`

	// Interval at which the Provider and its Secrets are reconciled. Defaults to 10m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Channel that events are sent to, if the type supports channels.
	// +kubebuilder:validation:MaxLength:=2048
	// +optional
	Channel string `json:"channel,omitempty"`

	// Username that events are posted with, if the type supports it.
	// +kubebuilder:validation:MaxLength:=2048
	// +optional
	Username string `json:"username,omitempty"`

	// Address that events are sent to; a URL for most types. The key address of the Secret takes precedence.
	// +kubebuilder:validation:MaxLength:=2048
	// +optional
	Address string `json:"address,omitempty"`

	// Timeout of one attempt to send an event. Defaults to 15s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m))+$"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// Proxy is the URL of an HTTP proxy.
	// Deprecated: use proxySecretRef.
	// +kubebuilder:validation:Pattern="^(http|https)://.*$"
	// +kubebuilder:validation:MaxLength:=2048
	// +optional
	Proxy string `json:"proxy,omitempty"`

	// ProxySecretRef references the Secret with the address of the proxy and, if needed, username and password.
	// +optional
	ProxySecretRef *meta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// SecretRef references the Secret with the credentials and settings of the type, such as token, username,
	// password, address and headers.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName is the ServiceAccount whose workload identity is used, if the type supports it.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef references the Secret with the CA certificate (ca.crt) and, for mutual TLS, tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// Suspend stops sending. Events that occur while suspended are not sent later.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// CommitStatusExpr is a CEL expression that returns the name of commit statuses. Its variables are event,
	// provider and alert.
	// +optional
	CommitStatusExpr string `json:"commitStatusExpr,omitempty"`
}

// ProviderStatus is what was observed of the Provider.
type ProviderStatus struct {
	meta.Status `json:",inline"`
}

// Provider defines where and how events are sent.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=all;fluxcd;fluxcd-notifications
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> priority=1
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",
// +> priority=1
type Provider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ProviderSpec   `json:"spec,omitempty"`
	Status ProviderStatus `json:"status,omitempty"`
}

// ProviderList is a list of Providers.
// +kubebuilder:object:root=true
type ProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Provider `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (p *Provider) CommonStatus() *meta.Status { return &p.Status.Status }

// Schedule returns when the Provider is reconciled.
func (p *Provider) Schedule() meta.Schedule {
	interval := cmp.Or(p.Spec.Interval, &meta.Duration{Duration: defaultInterval})
	return meta.Schedule{Interval: interval.Duration, Suspended: p.Spec.Suspend}
}

// GetTimeout returns the timeout of one attempt to send an event.
func (p *Provider) GetTimeout() time.Duration {
	if p.Spec.Timeout != nil && p.Spec.Timeout.Duration > 0 {
		return p.Spec.Timeout.Duration
	}
	return defaultTimeout
}
