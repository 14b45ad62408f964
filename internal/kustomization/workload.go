package kustomization

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

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// genericProvider is that of clusters which trust the issuer of this cluster's tokens by OIDC.
const genericProvider = "generic"

// workload is the ConfigMap of spec.kubeConfig.configMapRef.
type workload struct {
	about                      string
	provider, cluster, address string
	ca                         string
	account                    *types.NamespacedName // nil for the controller's
	audiences                  []string
}

// fromConfigMap makes a way to a cluster whose credentials are an identity: no Secret is kept anywhere.
func (r *Remote) fromConfigMap(ctx context.Context, obj *kustomizev1.Kustomization) (*access, error) {
	name := obj.Spec.KubeConfig.ConfigMapRef.Name
	w := workload{about: fmt.Sprintf("ConfigMap '%s/%s' of spec.kubeConfig", obj.Namespace, name)}
	var cm corev1.ConfigMap
	if err := r.read(ctx, obj.Namespace, name, &cm, w.about); err != nil {
		return nil, err
	}
	get := func(key string) string { return strings.TrimSpace(cm.Data[key]) }
	w.provider, w.cluster, w.address, w.ca = get("provider"), get("cluster"), get("address"), cm.Data["ca.crt"]
	w.audiences = listed(cm.Data["audiences"])
	account := get("serviceAccountName")
	if account == "" {
		account = r.DefaultAccount
	}
	if account != "" {
		w.account = &types.NamespacedName{Namespace: obj.Namespace, Name: account}
	}
	switch w.provider {
	case genericProvider:
		return r.generic(ctx, w)
	case auth.AWS, auth.Azure, auth.GCP:
		return r.managed(ctx, w)
	}
	return nil, w.refused("has the provider '%s'", w.provider).
		WithHint("Set the key provider to aws, azure, gcp or generic").Final()
}

// listed reads a list of one entry a line; a YAML list and commas are understood, too.
func listed(text string) []string {
	var all []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ',' }) {
		if entry := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- ")); entry != "" {
			all = append(all, entry)
		}
	}
	return all
}

func (w workload) refused(format string, args ...any) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, "%s %s", w.about, fmt.Sprintf(format, args...))
}

// id names all that a way is made of.
func (w workload) id(parts ...string) string {
	account := ""
	if w.account != nil {
		account = w.account.String()
	}
	return strings.Join(slices.Concat([]string{w.provider, w.cluster, w.address, w.ca, account}, w.audiences,
		parts), "\x00")
}

// generic logs in with tokens of a ServiceAccount that the cluster trusts.
func (r *Remote) generic(ctx context.Context, w workload) (*access, error) {
	if !strings.HasPrefix(w.address, "https://") {
		return nil, w.refused("needs the key address, an https URL").Final()
	}
	account := w.account
	if account == nil {
		if len(w.audiences) > 0 {
			// Whoever may write ConfigMaps could have the controller's token for any audience sent to him.
			return nil, w.refused("sets audiences for a token of the controller").
				WithHint("Name a ServiceAccount in the key serviceAccountName; the controller's token is for the " +
					"address alone").Final()
		}
		self, err := r.Self(ctx)
		if err != nil {
			return nil, w.refused("names no ServiceAccount, and the controller's is not known").Because(err).
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
			return "", time.Time{}, w.refused("gets no token of ServiceAccount '%s'", account).Because(err)
		}
		return t.Token, t.ExpirationTimestamp.Time, nil
	}
	return bearer(w.address, []byte(w.ca), w.id(account.String()), token), nil
}

// managed logs in to a cluster of a cloud.
func (r *Remote) managed(ctx context.Context, w workload) (*access, error) {
	if len(w.audiences) > 1 {
		return nil, w.refused("has %d audiences", len(w.audiences)).WithHint("Clouds check one").Final()
	}
	request := auth.ClusterRequest{Provider: w.provider, Cluster: w.cluster, Address: w.address, CA: []byte(w.ca),
		Account: w.account}
	if len(w.audiences) == 1 {
		request.Audience = w.audiences[0]
	}
	found, err := r.Identities.Cluster(ctx, request)
	if err != nil {
		f := w.refused("leads to no cluster").Because(err)
		if inner := fault.As(err); inner != nil && inner.Terminal {
			f = f.Final()
		}
		return nil, f
	}
	return bearer(found.Address, found.CA, w.id(found.Address, string(found.CA)), found.Token), nil
}

// bearer is a way whose requests carry tokens that are made anew before they end, or once they are refused.
func bearer(address string, ca []byte, id string, token tokens) *access {
	cfg := &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	cached := transport.NewCachedTokenSource(token)
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(cached))
	return &access{config: cfg, id: id, login: func(context.Context) error { _, err := cached.Token(); return err }}
}

const (
	tokenTimeout = 30 * time.Second // bounds the making of one token
	tokenLeeway  = time.Minute      // how long before its end a token is no longer used
)

// tokens makes a token, and says when it ends.
type tokens func(ctx context.Context) (string, time.Time, error)

// Token implements [oauth2.TokenSource].
func (t tokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	token, ends, err := t(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: token, Expiry: ends.Add(-tokenLeeway)}, nil
}
