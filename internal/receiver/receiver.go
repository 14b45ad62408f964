// Package receiver handles webhooks: it reconciles Receivers and serves their webhook paths.
package receiver

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=receivers,verbs=get;list;watch
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=receivers,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=receivers/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=receivers/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=notification.toolkit.fluxcd.io,resources=receivers/finalizers,verbs=update;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories,verbs=get;list;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories;helmcharts;buckets,verbs=get;list;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=externalartifacts,verbs=get;list;patch
// +kubebuilder:rbac:groups=source.extensions.fluxcd.io,resources=artifactgenerators,verbs=get;list;patch
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,resources=kustomizations,verbs=get;list;patch
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,resources=helmreleases,verbs=get;list;patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=get;list;patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations,verbs=get;list;patch
// +kubebuilder:rbac:groups=gating.toolkit.fluxcd.io,resources=gates,verbs=get;list;patch

// GroupKind is the kind of this package.
var GroupKind = schema.GroupKind{Group: notificationv1.GroupVersion.Group, Kind: notificationv1.ReceiverKind}

// Receiver is the step of Receivers: it validates them and sets status.webhookPath.
type Receiver struct {
	Plans *Plans
	Cache client.Reader // for Receivers, with the index of [IndexPaths]
}

// References implements [reconcile.Step].
func (s *Receiver) References(r *notificationv1.Receiver) []reconcile.Ref {
	if r.Spec.SecretRef == nil {
		return nil
	}
	return []reconcile.Ref{reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, r.Namespace, r.Spec.SecretRef.Name)}
}

// Reconcile implements [reconcile.Step].
func (s *Receiver) Reconcile(ctx context.Context, pass *reconcile.Pass[*notificationv1.Receiver]) reconcile.Outcome {
	r := pass.Object
	p, err := s.Plans.plan(ctx, r)
	if err != nil {
		r.SetWebhookPath("")
		return reconcile.Failed(err)
	}
	if err := s.checkPath(ctx, r, p.path); err != nil {
		r.SetWebhookPath("")
		return reconcile.Failed(err)
	}
	r.SetWebhookPath(p.path)
	return reconcile.Ready(meta.SucceededReason, "Receiver initialized for path: %s", p.path)
}

// checkPath refuses the path of an older Receiver. As in Flux, the path is the digest of token, name and namespace
// without separators, so two Receivers can have the same one if they have the same token.
func (s *Receiver) checkPath(ctx context.Context, r *notificationv1.Receiver, path string) error {
	var same notificationv1.ReceiverList
	if err := s.Cache.List(ctx, &same, client.MatchingFields{pathIndex: path}); err != nil {
		return fault.New(meta.FailedReason, "cannot list the Receivers with the same webhook path").Because(err)
	}
	if first := oldest(append(same.Items, *r)); first.UID != r.UID {
		return fault.New(meta.FailedReason, "the webhook path is that of another Receiver, which is older: their "+
			"tokens, names and namespaces, one after the other, are the same text").
			WithHint("Set another token in the Secret of spec.secretRef, or give the Receiver another name")
	}
	return nil
}

// oldest returns the Receiver that was created first, of those that are not being deleted; nil if there is none.
func oldest(all []notificationv1.Receiver) *notificationv1.Receiver {
	var first *notificationv1.Receiver
	for i := range all {
		r := &all[i]
		if r.DeletionTimestamp.IsZero() && (first == nil || compareAge(r, first) < 0) {
			first = r
		}
	}
	return first
}

// compareAge orders Receivers of one second by who has a path, as times of creation are in seconds.
func compareAge(a, b *notificationv1.Receiver) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		-cmp.Compare(min(len(a.Status.WebhookPath), 1), min(len(b.Status.WebhookPath), 1)),
		cmp.Compare(a.UID, b.UID))
}

// Finalize implements [reconcile.Step]. There is nothing to clean up.
func (s *Receiver) Finalize(context.Context, *notificationv1.Receiver) error { return nil }

// Plans validates Receivers with their Secrets.
type Plans struct {
	Secrets              client.Reader // not the cache: Secrets are not kept in memory
	NoCrossNamespaceRefs bool
}

// trust returns what callers of a Receiver must prove.
func (m *Plans) trust(ctx context.Context, r *notificationv1.Receiver) (hook.Trust, error) {
	t := hook.Trust{Type: r.Spec.Type, Events: r.Spec.Events}
	if r.Spec.Type == notificationv1.GenericOIDCReceiver {
		var err error
		t.Providers, err = providers(r.Spec.OIDCProviders)
		return t, err
	}
	if r.Spec.SecretRef == nil { // older API versions do not require it
		return t, fault.New(notificationv1.TokenNotFoundReason, "spec.secretRef is not set").
			WithHint("Set it to a Secret with the key token").Final()
	}
	name := r.Spec.SecretRef.Name
	var secret corev1.Secret
	err := m.Secrets.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return t, fault.New(notificationv1.TokenNotFoundReason, "Secret '%s/%s' not found", r.Namespace, name).
			WithHint("Create it with the key token or correct spec.secretRef")
	}
	if err != nil {
		return t, fault.New(notificationv1.TokenNotFoundReason, "cannot read Secret '%s/%s' of spec.secretRef",
			r.Namespace, name).Because(err)
	}
	t.Token, t.Email, t.Audience = string(secret.Data["token"]), string(secret.Data["email"]),
		string(secret.Data["audience"])
	if t.Token == "" {
		return t, fault.New(notificationv1.TokenNotFoundReason, "Secret '%s/%s' has no key token", r.Namespace, name).
			WithHint("Set it to a random text, and configure the sender of the webhook with it")
	}
	if r.Spec.Type == notificationv1.GCRReceiver && (t.Email == "" || t.Audience == "") {
		return t, fault.New(notificationv1.TokenNotFoundReason, "Secret '%s/%s' needs the keys email and audience",
			r.Namespace, name).
			WithHint("Set them to the service account and the audience of the push authentication of the Pub/Sub " +
				"subscription")
	}
	return t, nil
}
