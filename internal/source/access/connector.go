package access

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Connector holds what is needed to connect to remotes: the Secrets that objects refer to, the egress policy, and
// workload identities.
type Connector struct {
	Secrets    Secrets
	Egress     *egress.Policy
	Identities *auth.Identities
}

// options returns the connection options of a remote, read from the Secrets with its certificates and its proxy. A nil
// reference means that the object names no such Secret.
func (c Connector) options(ctx context.Context, namespace string, cert, proxy *meta.LocalObjectReference) (
	egress.Options, error) {
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

// Transport returns the transport to a remote whose certificates are in the Secret that spec.certSecretRef names. A nil
// reference means that the object names none.
func (c Connector) Transport(ctx context.Context, namespace string, cert *meta.LocalObjectReference) (
	http.RoundTripper, error) {
	options, err := c.options(ctx, namespace, cert, nil)
	if err != nil {
		return nil, err
	}
	return c.Egress.Transport(options)
}

// Secrets reads the Secrets that objects refer to.
type Secrets struct {
	Reader client.Reader // without a cache, so that Secrets are not kept in memory
}

// Data returns the data of a Secret that a field of an object refers to. It returns nil if the reference is nil, and a
// non-nil empty map for an empty Secret.
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

// SecretRefs returns edges to the named Secrets. Nil names are skipped.
func SecretRefs(namespace string, names ...*meta.LocalObjectReference) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, n := range names {
		if n != nil {
			refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, namespace, n.Name))
		}
	}
	return refs
}
