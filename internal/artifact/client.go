package artifact

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
)

// maxRedirects bounds how often a server may send a download elsewhere.
const maxRedirects = 5

// ClientOptions are how artifacts are read from other processes.
type ClientOptions struct {
	CA []byte // PEM of the authorities of artifact servers, beside those of the system
	// Token returns the token for those artifact servers that check their readers; Hosts are these, as host
	// or host:port. No other server sees it: anybody who may write the status of a source may send us
	// anywhere.
	Token func() (string, error)
	Hosts []string
}

// NewClient returns the HTTP client for a [Fetcher].
func NewClient(o ClientOptions) (*http.Client, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	if len(o.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("the authorities of artifact servers hold no certificate in PEM")
		}
		base.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: &tokens{base, o}, CheckRedirect: redirect}, nil
}

func redirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("it was redirected too often")
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errors.New("it was redirected from https to http")
	}
	return nil
}

// tokens sends the token to those who may see it.
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
