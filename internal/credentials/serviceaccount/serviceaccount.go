// Package serviceaccount reads the service accounts of the cluster and requests tokens for them.
package serviceaccount

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenLifetime is the requested lifetime of tokens, in seconds. The API's minimum is 600.
const tokenLifetime int64 = 3600

// Accounts implements auth.Accounts.
type Accounts struct {
	Reader client.Reader // not cached: a cache would hold all service accounts of the cluster
	Client client.Client
}

// Annotations returns the annotations of a service account.
func (a Accounts) Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error) {
	var sa corev1.ServiceAccount
	if err := a.Reader.Get(ctx, account, &sa); err != nil {
		return nil, err
	}
	return sa.Annotations, nil
}

// Token returns a new token of a service account for one audience.
func (a Accounts) Token(ctx context.Context, account types.NamespacedName, audience string) (string, error) {
	status, err := a.RequestToken(ctx, account, []string{audience})
	if err != nil {
		return "", err
	}
	return status.Token, nil
}

// RequestToken returns a new token of a service account with its expiration. Without audiences, it is for the API
// server.
func (a Accounts) RequestToken(ctx context.Context, account types.NamespacedName,
	audiences []string) (*authenticationv1.TokenRequestStatus, error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: audiences, ExpirationSeconds: ptr.To(tokenLifetime),
	}}
	if err := a.Client.SubResource("token").Create(ctx, sa, req); err != nil {
		return nil, err
	}
	return &req.Status, nil
}

// Self returns the service account that this process runs as.
func (a Accounts) Self(ctx context.Context) (types.NamespacedName, error) {
	var review authenticationv1.SelfSubjectReview
	if err := a.Client.Create(ctx, &review); err != nil {
		return types.NamespacedName{}, err
	}
	user := review.Status.UserInfo.Username
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, name, found := strings.Cut(account, ":")
	if !isAccount || !found {
		return types.NamespacedName{}, fmt.Errorf("the controller runs as user '%s', not as a service account", user)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
