package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// defaultTimeout bounds an SSH login when the context sets no deadline.
const defaultTimeout = time.Minute

// Remote is where a repository is and how to get in.
type Remote struct {
	URL         string
	Credentials auth.GitCredentials
}

// session opens a connection for fetching. The caller closes it.
func (r Remote) session(ctx context.Context, scratch string) (transport.UploadPackSession, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" {
		return nil, fault.New(meta.URLInvalidReason, "spec.url %q is not a URL of a repository", fault.RedactURL(r.URL)).
			WithHint("Use https://host/path or ssh://git@host/path").Final()
	}
	endpoint, err := transport.NewEndpoint(r.URL)
	if err != nil {
		return nil, fault.New(meta.URLInvalidReason, "spec.url %q is not a URL of a repository", fault.RedactURL(r.URL)).Final()
	}
	switch u.Scheme {
	case "http", "https":
		return r.overHTTP(endpoint)
	case "ssh":
		return r.overSSH(ctx, endpoint, u, scratch)
	default:
		return nil, fault.New(meta.URLInvalidReason, "spec.url has the scheme %q", u.Scheme).WithHint("Use http, https or ssh").Final()
	}
}

func (r Remote) overHTTP(endpoint *transport.Endpoint) (transport.UploadPackSession, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	t.DisableKeepAlives = true // one exchange an interval: an idle connection would only be dropped by the host
	c := r.Credentials
	if len(c.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(c.CA) {
			return nil, fault.New(meta.AuthenticationFailedReason, "the Secret's key ca.crt holds no certificate in PEM")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if len(c.ClientCert) > 0 {
		pair, err := tls.X509KeyPair(c.ClientCert, c.ClientKey)
		if err != nil {
			return nil, fault.New(meta.AuthenticationFailedReason, "the Secret's keys tls.crt and tls.key are no pair").Because(err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	var method transport.AuthMethod
	switch {
	case c.BearerToken != "":
		method = &githttp.TokenAuth{Token: c.BearerToken}
	case c.Username != "":
		method = &githttp.BasicAuth{Username: c.Username, Password: c.Password}
	}
	return githttp.NewClientWithOptions(&http.Client{Transport: t}, nil).NewUploadPackSession(endpoint, method)
}

func (r Remote) overSSH(ctx context.Context, endpoint *transport.Endpoint, u *url.URL, scratch string) (transport.UploadPackSession, error) {
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "22")
	}
	db, err := loadKnownHosts(r.Credentials.KnownHosts, scratch)
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "the Secret's key known_hosts cannot be read").
			Because(err).WithHint("It must hold the output of ssh-keyscan %s", u.Hostname())
	}
	timeout := defaultTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	config := &ssh.ClientConfig{
		User:              r.Credentials.Username,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(r.Credentials.Identity)},
		HostKeyCallback:   db.HostKeyCallback(),
		HostKeyAlgorithms: db.HostKeyAlgorithms(host), // those that known_hosts lists, so that the host presents one of them
		Timeout:           timeout,
	}
	return gitssh.NewClient(nil).NewUploadPackSession(endpoint, sshLogin{config})
}

// sshLogin is all of an SSH login, made here and left as it is by the transport.
type sshLogin struct{ config *ssh.ClientConfig }

func (l sshLogin) Name() string                             { return "ssh-public-key" }
func (l sshLogin) String() string                           { return l.Name() }
func (l sshLogin) ClientConfig() (*ssh.ClientConfig, error) { return l.config, nil }

// loadKnownHosts reads known hosts from memory; the library reads files only, so one lives for the moment of reading.
func loadKnownHosts(data []byte, scratch string) (*knownhosts.HostKeyDB, error) {
	file, err := os.CreateTemp(scratch, ".known_hosts-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name()) // public keys only
	_, err = file.Write(data)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return knownhosts.NewDB(filepath.Clean(file.Name()))
}

// explain turns an error of the transport into one for the person reading it.
func (r Remote) explain(err error, doing string) error {
	if err == nil || fault.As(err) != nil {
		return err
	}
	where := fault.RedactURL(r.URL)
	host := ""
	if u, parsed := url.Parse(r.URL); parsed == nil {
		host = u.Hostname()
	}
	var key *xknownhosts.KeyError
	var status *githttp.Err
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &key) && len(key.Want) == 0:
		return fault.New(meta.AuthenticationFailedReason, "the host key of %s is unknown", host).
			WithHint("Check the key, then add the output of ssh-keyscan %s to known_hosts in the Secret of spec.secretRef", host)
	case errors.As(err, &key):
		return fault.New(meta.AuthenticationFailedReason, "the host key of %s is not the one in known_hosts", host).
			WithHint("Either the host changed its key, or somebody stands in between: check before you update known_hosts")
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed),
		strings.Contains(err.Error(), "ssh: unable to authenticate"):
		return fault.New(meta.AuthenticationFailedReason, "%s refused the credentials while %s", where, doing).
			WithHint("Check the Secret of spec.secretRef, and that it may read the repository")
	case errors.Is(err, transport.ErrRepositoryNotFound), strings.Contains(err.Error(), "handshake failed: EOF"):
		return gitFault("repository %s not found", where).WithHint("Check spec.url, and that the credentials may see it")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return gitFault("repository %s is empty", where).WithHint("Push a first commit")
	case errors.As(err, &status):
		return gitFault("%s answered with status %d while %s", where, status.StatusCode(), doing).
			WithHint("The last artifact keeps being served, and the fetch is retried").After(retryAfter(status.Response))
	case errors.As(err, &dns):
		return gitFault("host %s is unknown", dns.Name).WithHint("Check spec.url and the cluster's DNS")
	case errors.As(err, &authority):
		return gitFault("the certificate of %s is signed by an unknown authority", where).
			WithHint("Add the authority's certificate as ca.crt to the Secret of spec.secretRef")
	case errors.Is(err, context.DeadlineExceeded):
		return gitFault("timed out while %s from %s", doing, where).WithHint("Raise spec.timeout, or check the network")
	default:
		return gitFault("%s from %s failed", doing, where).Because(errors.New(plain(err, r)))
	}
}

// plain is the text of an error without what is secret or changes with every try.
func plain(err error, r Remote) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	text := strings.ReplaceAll(err.Error(), r.URL, fault.RedactURL(r.URL))
	for _, secret := range []string{r.Credentials.Password, r.Credentials.BearerToken} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// retryAfter reads how long the host asks to wait (RFC 9110, 10.2.3); 0 when it does not.
func retryAfter(resp *http.Response) time.Duration {
	v := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(v); err == nil && seconds > 0 {
		return min(time.Duration(seconds)*time.Second, time.Hour)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(time.Until(at), 0), time.Hour)
	}
	return 0
}
