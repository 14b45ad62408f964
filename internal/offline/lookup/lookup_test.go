package lookup

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestHintFitsTheErrorOfTheCluster(t *testing.T) {
	gates := schema.GroupResource{Group: "gate.fluxcd.io", Resource: "gates"}
	for want, err := range map[string]error{
		"Run sluice install if this is a kind of " +
			"Sluice": &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Gate"}},
		"The cluster rejected the credentials: log in again, or choose another " +
			"--context": apierrors.NewUnauthorized("x"),
		"Ask an administrator for this permission, or use another account with --context or " +
			"--as": apierrors.NewForbidden(
			gates, "g", errors.New(`User "u" cannot get resource "gates" in API group "gate.fluxcd.io"`)),
		"is forbidden: not an " +
			"approver": apierrors.NewForbidden(gates, "g", errors.New("not an "+
			"approver")),
		"Set --certificate-authority to the CA certificate of the cluster": x509.UnknownAuthorityError{},
		"Raise --timeout if the cluster is slow":                           context.DeadlineExceeded,
		"Check that the cluster is running and that --context is correct": &net.OpError{Op: "dial",
			Err: errors.New("refused")},
	} {
		if got := WithHint(err).Error(); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want the hint %q", got, want)
		}
	}
}
