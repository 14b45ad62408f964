package rollout

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// AccountMissing reports whether the service account that is impersonated in the cluster of the controllers no longer
// exists. When a tenant is removed, its service account, namespace and Kustomizations are deleted in any order.
func (d Destination) AccountMissing(ctx context.Context, reader client.Reader, namespace string) bool {
	if d.ServiceAccount == "" || d.KubeConfig != nil {
		return false
	}
	key := types.NamespacedName{Namespace: namespace, Name: d.ServiceAccount}
	return apierrors.IsNotFound(reader.Get(ctx, key, &corev1.ServiceAccount{}))
}

// ExplainMissingAccount replaces a permission error that is due to a missing service account, since the API server does
// not report that. Other errors are returned unchanged.
func (d Destination) ExplainMissingAccount(ctx context.Context, reader client.Reader, namespace string,
	err error) error {
	key := types.NamespacedName{Namespace: namespace, Name: d.ServiceAccount}
	if err == nil || !strings.Contains(err.Error(), UserName(key)) || !d.AccountMissing(ctx, reader, namespace) {
		return err
	}
	return fault.New(fault.Reason(err, meta.ReconciliationFailedReason),
		"ServiceAccount '%s' not found, which spec.serviceAccountName or --default-service-account names", key).
		Because(err).WithHint("Create it, and bind a role to it that allows what it applies")
}
