package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
)

// explain says what failed, and adds to what the cluster answered what to do about it.
func explain(what string, err error) error {
	hint := ""
	var untrusted x509.UnknownAuthorityError
	var network *net.OpError
	var request *url.Error
	switch {
	case err == nil:
		return nil
	case apimeta.IsNoMatchError(err):
		return fmt.Errorf("%s: the cluster does not know this kind. Run sluice install", what)
	case apierrors.IsUnauthorized(err):
		hint = "The cluster does not accept who you are: log in again, or choose another --context"
	case apierrors.IsForbidden(err):
		hint = "Ask for this right, or use an account that has it with --context or --as"
	case errors.As(err, &untrusted):
		hint = "Set --certificate-authority to the file of the authority that signed the cluster's certificate"
	case errors.Is(err, context.DeadlineExceeded):
		hint = "Raise --timeout if the cluster is slow"
	case errors.As(err, &network), errors.As(err, &request):
		hint = "Is the cluster running, and is --context the right one?"
	}
	if hint == "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w. %s", what, err, hint)
}
