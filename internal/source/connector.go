package source

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Connector is what remotes are reached with: Secrets that objects name, the one way out, and identities of workloads.
type Connector struct {
	Secrets    Secrets
	Egress     *egress.Policy
	Identities *auth.Identities
}

// way says how to get to a remote, by the Secrets with its certificates and its proxy; nil names none.
func (c Connector) way(ctx context.Context, namespace string, cert, proxy *meta.LocalObjectReference) (egress.Options,
	error) {
	var o egress.Options
	data, err := c.Secrets.Data(ctx, namespace, cert, "spec.certSecretRef")
	if err != nil {
		return o, err
	}
	if o.TLS, err = auth.TLSFrom(data); err != nil {
		return o, err
	}
	data, err = c.Secrets.Data(ctx, namespace, proxy, "spec.proxySecretRef")
	if err != nil || data == nil {
		return o, err
	}
	o.Proxy, err = auth.ProxyFrom(data)
	return o, err
}

func proxyURL(way egress.Options) string {
	if way.Proxy == nil {
		return ""
	}
	return way.Proxy.String()
}

// Secrets reads the Secrets that sources refer to.
type Secrets struct {
	Reader client.Reader // past the cache: Secrets are not kept in memory
}

// Data returns the data of the Secret that a field of an object names; nil when it names none, which an empty
// Secret is not.
func (s Secrets) Data(ctx context.Context, namespace string, ref *meta.LocalObjectReference,
	field string) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	var secret corev1.Secret
	err := s.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(meta.AuthenticationFailedReason, "Secret '%s/%s' not found", namespace, ref.Name).
			WithHint("Create it, or correct %s", field)
	}
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "cannot read Secret '%s/%s' of %s", namespace, ref.Name,
			field).Because(err)
	}
	if secret.Data == nil {
		return map[string][]byte{}, nil
	}
	return secret.Data, nil
}

// secretRefs lists the Secrets that are named, as references that wake the object.
func secretRefs(namespace string, names ...*meta.LocalObjectReference) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, n := range names {
		if n != nil {
			refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, namespace, n.Name))
		}
	}
	return refs
}
