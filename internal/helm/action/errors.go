package action

import (
	"context"
	"errors"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// transientTexts are parts of errors that Helm reports only as text.
var transientTexts = []string{"exceeded quota", "failed calling webhook", "connection refused", "connection reset",
	"i/o timeout", "TLS handshake timeout", "http2: client connection lost", "no route to host",
	"unable to create new content in namespace", "etcdserver:",
	"Operation cannot be fulfilled on resourcequotas",
	"the server is currently unable to handle the request", "rate limiter Wait"}

// IsTransient reports whether an action failed for a reason that lies outside of the release: the API server, the
// network, a quota, a webhook that is down, memory that other work has, or the end of this process. Such failures do
// not count against the retries.
func IsTransient(err error) bool {
	var network net.Error
	switch {
	case err == nil, fault.Reason(err, "") == meta.HealthCheckFailedReason: // may quote logs
		return false
	case errors.Is(err, context.Canceled), apply.IsWaiting(err), apply.IsUnreachable(err),
		guard.IsWaitingForMemory(err):
		return true
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err),
		apierrors.IsTimeout(err), apierrors.IsInternalError(err), apierrors.IsUnauthorized(err):
		return true
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsHTTP2ConnectionLost(err),
		errors.As(err, &network):
		return true
	}
	text := err.Error()
	for _, part := range transientTexts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
