// Package lookup reads objects of a cluster for people: its errors end with what to do.
package lookup

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Explain returns an error that begins with what failed and, for known causes, ends with what to do. It returns nil for
// a nil error.
func Explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if apimeta.IsNoMatchError(err) {
		return fmt.Errorf("%s: this kind is not installed in the cluster. Run sluice install", what)
	}
	return WithHint(fmt.Errorf("%s: %w", what, err))
}

// WithHint adds what to do about an error to its end, if its cause is known.
func WithHint(err error) error {
	hint := ""
	var untrusted x509.UnknownAuthorityError
	var network *net.OpError
	var request *url.Error
	switch {
	case apimeta.IsNoMatchError(err):
		hint = "Run sluice install if this is a kind of Sluice"
	case apierrors.IsUnauthorized(err):
		hint = "The cluster rejected the credentials: log in again, or choose another --context"
	case apply.IsMissingRight(err):
		hint = "Ask an administrator for this permission, or use another account with --context or --as"
	case errors.As(err, &untrusted):
		hint = "Set --certificate-authority to the CA certificate of the cluster"
	case errors.Is(err, context.DeadlineExceeded):
		hint = "Raise --timeout if the cluster is slow"
	case errors.As(err, &network), errors.As(err, &request):
		hint = "Check that the cluster is running and that --context is correct"
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w. %s", err, hint)
}

// Get returns an object.
func Get(ctx context.Context, c client.Reader, k *kind.Kind, key types.NamespacedName) (reconcile.Object, error) {
	obj := k.New()
	err := c.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		return nil, NotFound(k, key)
	}
	return obj, Explain(fmt.Sprintf("cannot get %s '%s'", k.Name(), key), err)
}

// NotFound returns the error for an object that does not exist.
func NotFound(k *kind.Kind, key types.NamespacedName) error {
	return fmt.Errorf("%s '%s' not found. Run %s -A to list all", k.Name(), key, k.GetCommand())
}
