package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const hubEnv = "SLUICE_HUB"

// hubOptions say which hub a command asks, and as whom.
type hubOptions struct {
	url, caFile, tokenFile string
	flags                  *pflag.FlagSet
}

func (o *hubOptions) bind(f *pflag.FlagSet) {
	o.flags = f
	f.StringVar(&o.url, "hub", "", "with --clusters: URL of a hub, whose clusters are shown (default: $"+hubEnv+
		", or the hub in --namespace or "+cluster.DefaultNamespace+" of the kubeconfig's cluster)")
	f.StringVar(&o.caFile, "hub-ca-file", "",
		"PEM file of the certificate authorities of --hub (default: those of the system)")
	f.StringVar(&o.tokenFile, "hub-token-file", "",
		"file with a token of the hub's cluster (default: the token of the kubeconfig, which must be for that cluster)")
}

func (o *hubOptions) address(e *env) string { return cmp.Or(o.url, e.getenv(hubEnv)) }

// clusters returns what the hub knows of all clusters. Without the address of a hub, that is the one of the
// kubeconfig's cluster.
func (o *hubOptions) clusters(ctx context.Context, e *env) (*fleet.List, error) {
	ctx, cancel := e.WithTimeout(ctx)
	defer cancel()
	if o.address(e) == "" {
		return o.inCluster(ctx, e)
	}
	c, err := client.New(client.Options{URL: o.address(e), CAFile: o.caFile, Token: o.token(e)})
	if err != nil {
		return nil, usagef("--hub: %v", err)
	}
	return c.List(ctx, "", 0)
}

// noHubError is the error without a hub in the kubeconfig's cluster.
type noHubError struct{ reason string }

func (n *noHubError) Error() string {
	return "--clusters needs a hub that clusters report to. Set --hub to its URL, set $" + hubEnv + ", or use a " +
		"kubeconfig and --namespace of the cluster and the namespace that it runs in: " + n.reason
}

// inCluster asks the hub of the kubeconfig's cluster, by the proxy of the API server. Only the namespace of the command
// or of installations counts: a Service of that name elsewhere may be anybody's, and gets a token.
func (o *hubOptions) inCluster(ctx context.Context, e *env) (*fleet.List, error) {
	namespace := cluster.DefaultNamespace
	if o.flags.Changed("namespace") {
		namespace = e.Namespace()
	}
	cfg, err := e.Config()
	if err != nil {
		return nil, &noHubError{err.Error()}
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := clients.CoreV1().Services(namespace).Get(ctx, fleet.Service, metav1.GetOptions{}); err != nil {
		return nil, &noHubError{cluster.Explain(fmt.Sprintf("Service '%s/%s' cannot be read", namespace, fleet.Service),
			err).Error()}
	}
	token, err := o.token(e)(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, scheme := range []string{"https", "http"} { // the hub has a certificate, or a proxy before it
		get := clients.CoreV1().RESTClient().Get().Namespace(namespace).Resource("services").SubResource("proxy").
			Name(net.JoinSchemeNamePort(scheme, fleet.Service, "443")).Suffix(fleet.ClustersPath).
			SetHeader(fleet.TokenHeader, token)
		list, err := readProxied(get.Do(ctx))
		if err == nil {
			return list, nil
		}
		if refused := (*client.RefusedError)(nil); errors.As(err, &refused) {
			return nil, err
		}
		if failed == nil {
			failed = err
		}
	}
	return nil, cluster.Explain(fmt.Sprintf("cannot reach Service '%s/%s' by the API server, which needs the right to "+
		"get services/proxy", namespace, fleet.Service), failed)
}

// readProxied reads the answer of a hub that the API server passed on. The error is a [client.RefusedError] if the hub
// refused the request.
func readProxied(answer rest.Result) (*fleet.List, error) {
	status := 0
	answer.StatusCode(&status)
	raw, err := answer.Raw()
	if err != nil {
		refused := &client.RefusedError{Status: status}
		if json.Unmarshal(raw, &refused.Body) == nil && refused.Body.Error != "" {
			return nil, refused
		}
		return nil, fmt.Errorf("%w: %s", err, excerpt.Line(string(raw), fleet.MaxMessage))
	}
	list := &fleet.List{}
	if err := json.Unmarshal(raw, list); err != nil || list.Version == "" {
		return nil, errors.New("what answers there is not a hub")
	}
	return list, nil
}

// token returns what reads the token for the hub.
func (o *hubOptions) token(e *env) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		if o.tokenFile != "" {
			raw, err := os.ReadFile(o.tokenFile)
			return strings.TrimSpace(string(raw)), err
		}
		cfg, err := e.Config()
		if err != nil {
			return "", err
		}
		token, err := tokenOf(cfg)
		if err == nil && token == "" {
			err = errors.New("the kubeconfig has no token: set --hub-token-file, with the token that " +
				"'kubectl create token' prints for an account of the hub's cluster")
		}
		return token, err
	}
}

// tokenOf returns the bearer token that requests with a configuration have, also one that a plugin provides.
func tokenOf(cfg *rest.Config) (string, error) {
	c, err := cfg.TransportConfig()
	if err != nil {
		return "", err
	}
	seen := &tokenReader{}
	wrapped, err := transport.HTTPWrappersForConfig(c, seen)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequest(http.MethodGet, cfg.Host, nil)
	if err != nil {
		return "", err
	}
	if _, err = wrapped.RoundTrip(r); !errors.Is(err, errNotSent) { //nolint:bodyclose // nothing is sent
		return "", err
	}
	return seen.token, nil
}

var errNotSent = errors.New("not sent")

// tokenReader takes the token of a request, which it does not send.
type tokenReader struct{ token string }

// RoundTrip implements [http.RoundTripper].
func (t *tokenReader) RoundTrip(r *http.Request) (*http.Response, error) {
	t.token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return nil, errNotSent
}

// silent says why what is known of a cluster is old; empty if it is not.
func silent(c fleet.Cluster) string {
	switch c.Status {
	case fleet.Silent:
		return fmt.Sprintf("silent since %s", c.Received.UTC().Format("2006-01-02 15:04 UTC"))
	case fleet.Expected:
		return "has never reported"
	}
	return ""
}
