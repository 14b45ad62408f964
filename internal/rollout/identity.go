package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// genericProvider is the provider of clusters that trust the issuer of this cluster's tokens by OIDC.
const genericProvider = "generic"

// identityConfig is the content of the ConfigMap of spec.kubeConfig.configMapRef.
type identityConfig struct {
	name      string // of the ConfigMap, for errors
	provider  string
	cluster   string
	address   string
	ca        string
	account   *types.NamespacedName // nil for the controller's
	audiences []string
}

// fromConfigMap connects by workload identity, without a stored credential.
func (r *RemoteClusters) fromConfigMap(ctx context.Context, namespace, configMap string) (*connection, error) {
	w := identityConfig{name: fmt.Sprintf("ConfigMap '%s/%s' of spec.kubeConfig", namespace, configMap)}
	var cm corev1.ConfigMap
	if err := r.read(ctx, namespace, configMap, &cm, w.name); err != nil {
		return nil, err
	}
	get := func(key string) string { return strings.TrimSpace(cm.Data[key]) }
	w.provider, w.cluster, w.address, w.ca = get("provider"), get("cluster"), get("address"), cm.Data["ca.crt"]
	w.audiences = parseList(cm.Data["audiences"])
	account := get("serviceAccountName")
	if account == "" {
		account = r.DefaultAccount
	}
	if account != "" {
		w.account = &types.NamespacedName{Namespace: namespace, Name: account}
	}
	switch w.provider {
	case genericProvider:
		return r.connectGeneric(ctx, w)
	case auth.AWS, auth.Azure, auth.GCP:
		return r.connectCloud(ctx, w)
	}
	return nil, w.fault("has unknown provider '%s'", w.provider).
		WithHint("Set the key provider to aws, azure, gcp or generic").Final()
}

// parseList reads a list with one entry per line. It also accepts a YAML list and commas.
func parseList(text string) []string {
	var all []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ',' }) {
		if entry := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- ")); entry != "" {
			all = append(all, entry)
		}
	}
	return all
}

func (w identityConfig) fault(format string, args ...any) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, "%s %s", w.name, fmt.Sprintf(format, args...))
}

// id returns a string that changes with each part of the configuration.
func (w identityConfig) id(parts ...string) string {
	account := ""
	if w.account != nil {
		account = w.account.String()
	}
	return strings.Join(slices.Concat([]string{w.provider, w.cluster, w.address, w.ca, account}, w.audiences,
		parts), "\x00")
}

// connectGeneric connects with tokens of a ServiceAccount that the cluster trusts.
func (r *RemoteClusters) connectGeneric(ctx context.Context, w identityConfig) (*connection, error) {
	if !strings.HasPrefix(w.address, "https://") {
		return nil, w.fault("needs an https URL in key address").Final()
	}
	account := w.account
	if account == nil {
		if len(w.audiences) > 0 {
			// A user who may write ConfigMaps could otherwise have the controller's token for any audience sent to
			// their own server.
			return nil, w.fault("sets audiences for a token of the controller").
				WithHint("Name a ServiceAccount in the key serviceAccountName; the controller's own token is only " +
					"issued for the address").Final()
		}
		self, err := r.Self(ctx)
		if err != nil {
			return nil, w.fault("names no ServiceAccount, and the controller's own is not known").Because(err).
				WithHint("Set the key serviceAccountName")
		}
		account = &self
	}
	audiences := w.audiences
	if len(audiences) == 0 {
		audiences = []string{w.address}
	}
	token := func(ctx context.Context) (string, time.Time, error) {
		t, err := r.Token(ctx, *account, audiences)
		if err != nil {
			return "", time.Time{}, w.fault("cannot get a token of ServiceAccount '%s'", account).Because(err)
		}
		return t.Token, t.ExpirationTimestamp.Time, nil
	}
	return withTokens(w.address, []byte(w.ca), w.id(account.String()), token), nil
}

// connectCloud connects to a managed cluster of a cloud.
func (r *RemoteClusters) connectCloud(ctx context.Context, w identityConfig) (*connection, error) {
	if len(w.audiences) > 1 {
		return nil, w.fault("has %d audiences", len(w.audiences)).WithHint("Set one: clouds check only one").Final()
	}
	request := auth.ClusterRequest{Provider: w.provider, Cluster: w.cluster, Address: w.address, CA: []byte(w.ca),
		Account: w.account}
	if len(w.audiences) == 1 {
		request.Audience = w.audiences[0]
	}
	found, err := r.Identities.Cluster(ctx, request)
	if err != nil {
		f := w.fault("does not lead to a cluster").Because(err)
		if inner := fault.As(err); inner != nil && inner.Terminal {
			f = f.Final()
		}
		return nil, f
	}
	return withTokens(found.Address, found.CA, w.id(found.Address, string(found.CA)), found.Token), nil
}

// withTokens returns a connection whose requests carry tokens. Tokens are renewed before they expire, and after they
// are rejected.
func withTokens(address string, ca []byte, id string, token tokenSource) *connection {
	cfg := &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	cached := transport.NewCachedTokenSource(token)
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(cached))
	login := func(context.Context) error {
		_, err := cached.Token()
		return err
	}
	return &connection{config: cfg, id: id, login: login}
}

const (
	tokenTimeout = 30 * time.Second // bounds the request for one token
	tokenLeeway  = time.Minute      // a token is renewed this long before it expires
)

// tokenSource returns a new token and its expiry.
type tokenSource func(ctx context.Context) (string, time.Time, error)

// Token implements [oauth2.TokenSource].
func (t tokenSource) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	token, expiry, err := t(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: token, Expiry: expiry.Add(-tokenLeeway)}, nil
}
