// Package alert decides which events go to whom, and sends them: it reconciles Alerts and Providers, finds
// the alerts that want an event, and makes of a Provider and its Secrets what sends it.
package alert

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=alerts;providers,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=alerts/status;providers/status,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories;helmrepositories;helmcharts;buckets;externalartifacts,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators,verbs=get;list;watch
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=get;list;watch
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases,verbs=get;list;watch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies;imageupdateautomations,verbs=get;list;watch
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;watch

// The kinds, as the kernel knows them.
var (
	AlertGroupKind    = schema.GroupKind{Group: v1beta3.GroupVersion.Group, Kind: v1beta3.AlertKind}
	ProviderGroupKind = schema.GroupKind{Group: v1beta3.GroupVersion.Group, Kind: v1beta3.ProviderKind}
)

const initialized = "Initialized" // as ever

// Alert checks Alerts, and tells what is wrong with them. What they want is the [Router]'s.
type Alert struct {
	Client               client.Reader
	NoCrossNamespaceRefs bool
}

// References implements [reconcile.Step].
func (s *Alert) References(a *v1beta3.Alert) []reconcile.Ref {
	return []reconcile.Ref{reconcile.RefTo(ProviderGroupKind, a.Namespace, a.Spec.ProviderRef.Name)}
}

// Reconcile implements [reconcile.Step].
func (s *Alert) Reconcile(ctx context.Context, pass *reconcile.Pass[*v1beta3.Alert]) reconcile.Outcome {
	a := pass.Object
	if _, err := compile(a, s.NoCrossNamespaceRefs); err != nil {
		return reconcile.Failed(err)
	}
	key := types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.ProviderRef.Name}
	err := s.Client.Get(ctx, key, &v1beta3.Provider{})
	if apierrors.IsNotFound(err) {
		return reconcile.Failed(fault.New(meta.DependencyNotReadyReason,
			"Provider '%s' not found, so no event is sent", key).
			WithHint("Create it, or correct spec.providerRef"))
	}
	if err != nil {
		return reconcile.Failed(err)
	}
	return reconcile.Ready(meta.SucceededReason, initialized)
}

// Finalize implements [reconcile.Step]: nothing outlives the object.
func (s *Alert) Finalize(context.Context, *v1beta3.Alert) error { return nil }

// Provider checks Providers with their Secrets, and tells whether they get through.
type Provider struct {
	Resolver *Resolver
	Health   *Health
	Retry    func(provider types.NamespacedName) // sends at once what waits for it
}

// References implements [reconcile.Step].
func (s *Provider) References(p *v1beta3.Provider) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, r := range []*meta.LocalObjectReference{p.Spec.SecretRef, p.Spec.CertSecretRef, p.Spec.ProxySecretRef} {
		if r != nil {
			refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, p.Namespace, r.Name))
		}
	}
	return refs
}

// Reconcile implements [reconcile.Step].
func (s *Provider) Reconcile(ctx context.Context, pass *reconcile.Pass[*v1beta3.Provider]) reconcile.Outcome {
	p := pass.Object
	key := client.ObjectKeyFromObject(p)
	_, changed, err := s.Resolver.look(ctx, p)
	if changed || pass.Requested {
		s.Health.Forget(key) // it was of what is another now
	}
	if err != nil {
		return reconcile.Failed(err)
	}
	if changed || pass.Requested {
		s.Retry(key)
	}
	if err := s.Health.of(key); err != nil {
		return reconcile.Failed(err)
	}
	return reconcile.Ready(meta.SucceededReason, initialized)
}

// Finalize implements [reconcile.Step]: what waits for a Provider that is gone is dropped as the [Router] sees it go.
func (s *Provider) Finalize(context.Context, *v1beta3.Provider) error { return nil }
