package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/sync"
)

// accounts gives workload identity the service accounts of the cluster. They are read past the cache, which would hold all of them.
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
func accountTokens(c client.Client) func(context.Context, types.NamespacedName, []string) (*authenticationv1.TokenRequestStatus, error) {
	return func(ctx context.Context, account types.NamespacedName, audiences []string) (*authenticationv1.TokenRequestStatus, error) {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
		req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To(tokenSeconds)}}
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
			return types.NamespacedName{}, fmt.Errorf("the controller runs as %s, which is none", review.Status.UserInfo.Username)
		}
		return types.NamespacedName{Namespace: namespace, Name: name}, nil
	}
}

// remote is how other clusters are reached.
func (o *Options) remote(mgr ctrlmanager.Manager, out *wayOut) *sync.Remote {
	reach := sync.NewReach(out.policy.Dialer())
	reach.QPS, reach.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	return &sync.Remote{
		Reader: mgr.GetAPIReader(), Identities: out.identities, Token: accountTokens(mgr.GetClient()), Self: self(mgr.GetClient()),
		DefaultAccount: o.KubeConfigAccount, AllowExec: o.KubeConfigExec, AllowInsecureTLS: o.KubeConfigTLS, Reach: reach,
	}
}

// wayOut is the one way out of the process, and what turns workload identity into credentials by it.
type wayOut struct {
	policy     *egress.Policy
	transport  http.RoundTripper
	identities *auth.Identities
}

func newWayOut(mgr ctrlmanager.Manager, o Options) (*wayOut, error) {
	policy := &egress.Policy{PerHost: o.requestsPerHost(), RefuseLinkLocal: !o.AllowLinkLocal}
	transport, err := policy.Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	identities := &auth.Identities{
		Accounts: accounts{mgr.GetAPIReader(), mgr.GetClient()}, Transport: transport, Keep: o.keptTokens(), DefaultAccount: o.identityAccount(),
	}
	return &wayOut{policy, transport, identities}, mgr.Add(collected{tokenMetrics{identities}})
}

// maxBase bounds a manifest that a kustomization names by its URL.
const maxBase = 10 << 20

// fetchBase returns what fetches remote bases, or nil where they are refused.
func (o *Options) fetchBase(out *wayOut) func(ctx context.Context, url string) ([]byte, error) {
	if o.NoRemoteBases {
		return nil
	}
	return func(ctx context.Context, url string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, errors.New("the URL cannot be read")
		}
		resp, err := (&http.Client{Transport: out.transport}).Do(req)
		if err != nil {
			return nil, errors.Unwrap(err) // without the URL
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the server answered with %s", resp.Status)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxBase+1))
		if len(b) > maxBase {
			return nil, fmt.Errorf("it is larger than %d MiB", maxBase>>20)
		}
		return b, err
	}
}
