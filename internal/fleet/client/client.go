// Package client sends requests to a hub.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	requestTimeout = 15 * time.Second
	maxError       = 4 << 10   // bytes of the body of an error
	maxAnswer      = 128 << 20 // bytes: 2,000 clusters of the maximum size
)

// Options say which hub to ask, and as whom.
type Options struct {
	URL string // scheme and host of the hub
	// CAFile is a PEM file of the authorities that the hub's certificate may be from; empty for those of the system. It
	// is read for each request.
	CAFile string
	// Token returns the bearer token of a request.
	Token func(ctx context.Context) (string, error)
	// Cluster is the name of the cluster that the token is of; empty if it is that of a user.
	Cluster string
}

// Client sends requests to a hub. It implements [fleet.Reader].
type Client struct {
	Options
	base *url.URL
}

// New returns a client. It sends nothing.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("the URL of a hub is a scheme and a host, such as https://hub.example.com")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return nil, errors.New("the URL of a hub must start with https://: requests contain a token")
	}
	return &Client{Options: o, base: &url.URL{Scheme: u.Scheme, Host: u.Host}}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// RefusedError is the error for a request that the hub refused.
type RefusedError struct {
	Status int
	Body   fleet.Error
	// RetryAfter is how long the hub asked to wait; zero if it did not.
	RetryAfter time.Duration
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("the hub answers %d: %s", e.Status, e.Body.Error)
	if e.Body.Hint != "" {
		text += ". " + e.Body.Hint
	}
	return text
}

// List implements [fleet.Reader].
func (c *Client) List(ctx context.Context, since string, wait time.Duration) (*fleet.List, error) {
	query := url.Values{}
	if since != "" {
		query.Set("since", since)
	}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	list := &fleet.List{}
	return list, c.do(ctx, http.MethodGet, fleet.ClustersPath+"?"+query.Encode(), nil, list, wait+requestTimeout)
}

// Get implements [fleet.Reader].
func (c *Client) Get(ctx context.Context, name string) (*fleet.Cluster, error) {
	one := &fleet.Cluster{}
	err := c.do(ctx, http.MethodGet, fleet.ClustersPath+"/"+url.PathEscape(name), nil, one, requestTimeout)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return nil, fleet.ErrNotFound
	}
	return one, err
}

// Rollout asks how far the revisions of a source have come in other clusters.
func (c *Client) Rollout(ctx context.Context, q fleet.Question) (*fleet.Rollout, error) {
	query := url.Values{"source": {q.Source}, "share": {strconv.Itoa(q.Share)}}
	if len(q.Labels) > 0 {
		query.Set("labels", labels.FormatLabels(q.Labels))
	}
	if q.At != "" {
		query.Set("at", q.At)
	}
	r := &fleet.Rollout{}
	return r, c.do(ctx, http.MethodGet, fleet.RolloutPath+"?"+query.Encode(), nil, r, requestTimeout)
}

// Report sends the body of a report.
func (c *Client) Report(ctx context.Context, body []byte) error {
	return c.do(ctx, http.MethodPost, fleet.ReportsPath, body, nil, requestTimeout)
}

// Request returns a request to the hub with the login of the client.
func (c *Client) Request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	token, err := c.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot get a token for the hub: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if c.Cluster != "" {
		r.Header.Set(fleet.ClusterHeader, c.Cluster)
	}
	return r, nil
}

// TLS returns the configuration of connections to the hub.
func (c *Client) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities of the hub: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("file %s has no certificate in PEM", c.CAFile)
	}
	return config, nil
}

// do sends a request on a connection of its own: the next one is a minute away, and another hub may answer it.
func (c *Client) do(ctx context.Context, method, path string, body []byte, into any, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := c.Request(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	config, err := c.TLS()
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment,
			MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return c.Explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return Refused(resp, "check what runs at "+c.base.Host)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("the answer of %s cannot be read: %w. Check that a hub runs at this URL", c.base.Host, err)
	}
	return nil
}

// Explain says what to do about a request without an answer. The error does not contain the URL.
func (c *Client) Explain(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is not trusted: %w. Set the file with its certificate authority, or "+
			"check who answers at this address", c.base.Host, err)
	case errors.As(err, &name), errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not valid: %w. Check the clock, the URL of the hub and its "+
			"certificate", c.base.Host, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("hub %s does not answer within the time: %w", c.base.Host, err)
	}
	return fmt.Errorf("cannot reach hub %s: %w", c.base.Host, err)
}

// Refused returns the error of an answer. The hint says what to do if it is not that of a hub.
func Refused(resp *http.Response, hint string) error {
	refused := &RefusedError{Status: resp.StatusCode}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // what is missing is not shown
	body := &refused.Body
	if json.Unmarshal(b, body) != nil || body.Error == "" {
		body.Error = http.StatusText(resp.StatusCode)
		body.Hint = "This is not the answer of a hub: " + hint
	}
	body.Error, body.Hint = excerpt.Line(body.Error, fleet.MaxMessage), excerpt.Line(body.Hint, fleet.MaxMessage)
	if d, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s"); err == nil {
		refused.RetryAfter = min(max(d, 0), time.Hour)
	}
	return refused
}
