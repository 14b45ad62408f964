package manager

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

// accounts gives workload identity the service accounts of the cluster. They are read past the cache, which
// would hold all of them.
type accounts struct {
	reader client.Reader
	tokens client.Client
}

// Annotations implements auth.Accounts.
func (a accounts) Annotations(ctx context.Context, account types.NamespacedName) (map[string]string, error) {
	var sa corev1.ServiceAccount
	if err := a.reader.Get(ctx, account, &sa); err != nil {
		return nil, err
	}
	return sa.Annotations, nil
}

// Token implements auth.Accounts.
func (a accounts) Token(ctx context.Context, account types.NamespacedName, audience string) (string, error) {
	status, err := accountTokens(a.tokens)(ctx, account, []string{audience})
	if err != nil {
		return "", err
	}
	return status.Token, nil
}

// accountTokens makes tokens of ServiceAccounts.
func accountTokens(c client.Client) func(context.Context, types.NamespacedName,
	[]string) (*authenticationv1.TokenRequestStatus, error) {
	return func(ctx context.Context, account types.NamespacedName,
		audiences []string) (*authenticationv1.TokenRequestStatus, error) {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
		req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences,
			ExpirationSeconds: ptr.To(tokenSeconds)}}
		if err := c.SubResource("token").Create(ctx, sa, req); err != nil {
			return nil, err
		}
		return &req.Status, nil
	}
}

// tokenSeconds is how long a ServiceAccount's token is asked to be good for; the least that the API allows is 600.
const tokenSeconds int64 = 3600

// self tells which service account the controllers run as.
func self(c client.Client) func(context.Context) (types.NamespacedName, error) {
	return func(ctx context.Context) (types.NamespacedName, error) {
		var review authenticationv1.SelfSubjectReview
		if err := c.Create(ctx, &review); err != nil {
			return types.NamespacedName{}, err
		}
		user, isAccount := strings.CutPrefix(review.Status.UserInfo.Username, "system:serviceaccount:")
		namespace, name, found := strings.Cut(user, ":")
		if !isAccount || !found {
			return types.NamespacedName{}, fmt.Errorf("the controller runs as %s, which is none",
				review.Status.UserInfo.Username)
		}
		return types.NamespacedName{Namespace: namespace, Name: name}, nil
	}
}
