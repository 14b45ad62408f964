package artifact

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// maxRedirects is the maximum number of redirects of a download.
const maxRedirects = 5

// ClientOptions configure how artifacts are read from other processes.
type ClientOptions struct {
	CA []byte // PEM certificates of the CAs of artifact servers, in addition to the CAs of the system
	// Token returns the token for artifact servers that authenticate their clients. Hosts lists these servers as
	// host or host:port. The token is not sent to any other server, because a user with write access to the status
	// of a source can direct requests to any URL.
	Token func() (string, error)
	Hosts []string
}

// NewExternalClient returns the HTTP client of a [Fetcher] for ExternalArtifacts. Its requests are subject to the
// policy.
func NewExternalClient(o ClientOptions, policy *egress.Policy) (*http.Client, error) {
	base, err := policy.Transport(egress.Options{TLS: auth.TLS{CA: o.CA}})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &tokens{base, o}, CheckRedirect: redirect}, nil
}

// NewClient returns the HTTP client of a [Fetcher] for sources. No artifact server has a link-local address, so that it
// rejects them.
func NewClient(o ClientOptions) (*http.Client, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&egress.Policy{RefuseLinkLocal: true}).Dialer().DialContext
	if len(o.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("the CA file for artifact servers contains no PEM certificate")
		}
		base.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: &tokens{base, o}, CheckRedirect: redirect}, nil
}

func redirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("the server redirected the request too often")
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errors.New("the server redirected the request from https to http")
	}
	return nil
}

// tokens adds the token to requests to the configured hosts.
type tokens struct {
	base    http.RoundTripper
	options ClientOptions
}

func (t *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.options.Token == nil || !slices.Contains(t.options.Hosts, r.URL.Host) &&
		!slices.Contains(t.options.Hosts, r.URL.Hostname()) {
		return t.base.RoundTrip(r)
	}
	token, err := t.options.Token()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return t.base.RoundTrip(r)
}
