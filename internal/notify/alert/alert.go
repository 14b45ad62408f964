// Package alert routes events to Providers and sends them. It reconciles Alerts and Providers, finds the Alerts
// that select an event, and creates senders from Providers and their Secrets.
package alert

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=alerts,verbs=get;list;watch
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=alerts,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=providers,verbs=get;list;watch
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=providers,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=alerts/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=providers/status,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories;helmcharts;buckets,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators,verbs=get;list;watch
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=get;list;watch
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases,verbs=get;list;watch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations,verbs=get;list;watch
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;watch

// The kinds of this package.
var (
	AlertGroupKind    = schema.GroupKind{Group: notificationv1.GroupVersion.Group, Kind: notificationv1.AlertKind}
	ProviderGroupKind = schema.GroupKind{Group: notificationv1.GroupVersion.Group, Kind: notificationv1.ProviderKind}
)

const initialized = "Initialized" // the documented message

// Alert is the step of Alerts: it validates them. The [Router] evaluates them.
type Alert struct {
	Client               client.Reader
	NoCrossNamespaceRefs bool
}

// References implements [reconcile.Step].
func (s *Alert) References(a *notificationv1.Alert) []reconcile.Ref {
	return []reconcile.Ref{reconcile.RefTo(ProviderGroupKind, a.Namespace, a.Spec.ProviderRef.Name)}
}

// Reconcile implements [reconcile.Step].
func (s *Alert) Reconcile(ctx context.Context, pass *reconcile.Pass[*notificationv1.Alert]) reconcile.Outcome {
	a := pass.Object
	if _, err := compile(a, s.NoCrossNamespaceRefs); err != nil {
		return reconcile.Failed(err)
	}
	key := types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.ProviderRef.Name}
	err := s.Client.Get(ctx, key, &notificationv1.Provider{})
	if apierrors.IsNotFound(err) {
		return reconcile.Failed(fault.New(meta.DependencyNotReadyReason,
			"Provider '%s' not found", key).
			WithHint("Create it or correct spec.providerRef; until then, no event is sent"))
	}
	if err != nil {
		return reconcile.Failed(err)
	}
	return reconcile.Ready(meta.SucceededReason, initialized)
}

// Finalize implements [reconcile.Step]. There is nothing to clean up.
func (s *Alert) Finalize(context.Context, *notificationv1.Alert) error { return nil }

// Provider is the step of Providers: it validates them with their Secrets and reports failed attempts to send.
type Provider struct {
	Resolver *Resolver
	Health   *Health
	Retry    func(provider types.NamespacedName) // ends the backoff of pending deliveries
}

// References implements [reconcile.Step].
func (s *Provider) References(p *notificationv1.Provider) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, r := range []*meta.LocalObjectReference{p.Spec.SecretRef, p.Spec.CertSecretRef, p.Spec.ProxySecretRef} {
		if r != nil {
			refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, p.Namespace, r.Name))
		}
	}
	return refs
}

// Reconcile implements [reconcile.Step].
func (s *Provider) Reconcile(ctx context.Context, pass *reconcile.Pass[*notificationv1.Provider]) reconcile.Outcome {
	p := pass.Object
	key := client.ObjectKeyFromObject(p)
	_, changed, err := s.Resolver.resolve(ctx, p)
	if changed || pass.Requested {
		s.Health.Forget(key) // the failure may be fixed
	}
	if err != nil {
		return reconcile.Failed(err)
	}
	if changed || pass.Requested {
		s.Retry(key)
	}
	if err := s.Health.Err(key); err != nil {
		return reconcile.Failed(err)
	}
	return reconcile.Ready(meta.SucceededReason, initialized)
}

// Finalize implements [reconcile.Step]. The [Router] reports deleted Providers, and their deliveries are dropped.
func (s *Provider) Finalize(context.Context, *notificationv1.Provider) error { return nil }
