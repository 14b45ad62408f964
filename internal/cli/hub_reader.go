package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
)

const hubEnv = "SLUICE_HUB"

// hubOptions say which hub a command asks, and as whom.
type hubOptions struct{ url, caFile, tokenFile string }

func (o *hubOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.url, "hub", "", "with --clusters: URL of a hub, whose clusters are shown (default: $"+hubEnv+")")
	f.StringVar(&o.caFile, "hub-ca-file", "",
		"PEM file of the certificate authorities of --hub (default: those of the system)")
	f.StringVar(&o.tokenFile, "hub-token-file", "",
		"file with a token of the hub's cluster (default: the token of the kubeconfig, which must be for that cluster)")
}

func (o *hubOptions) address(e *env) string { return cmp.Or(o.url, e.getenv(hubEnv)) }

// clusters returns what the hub knows of all clusters.
func (o *hubOptions) clusters(ctx context.Context, e *env) (*fleet.List, error) {
	if o.address(e) == "" {
		return nil, usagef("--clusters needs --hub, the URL of a hub that clusters report to")
	}
	c, err := client.New(client.Options{URL: o.address(e), CAFile: o.caFile, Token: o.token(e)})
	if err != nil {
		return nil, usagef("--hub: %v", err)
	}
	ctx, cancel := e.WithTimeout(ctx)
	defer cancel()
	return c.List(ctx, "", 0)
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
