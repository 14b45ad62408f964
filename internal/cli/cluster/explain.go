package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-gitops/sluice/internal/apply"
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
