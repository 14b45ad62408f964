package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

var (
	errEmpty    = errors.New("the repository is empty")
	errNotGit   = errors.New("the answer is not of git's smart protocol")
	errRedirect = errors.New("the redirect is not allowed")
	errTooLarge = errors.New("the pack is too large")
	// errObjectFormat is the error for hashes that go-git reads only in a program that reads no others.
	errObjectFormat = errors.New("the repository has object-format=sha256")

	errShallow = errors.New("the answer names too many shallow commits")
)

// statusError is the error for an HTTP status other than 200.
type statusError struct {
	code  int
	after time.Duration // how long the host asks to wait
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.code, http.StatusText(e.code))
}

// sshRefusal is the error for an SSH service that ended without an answer.
type sshRefusal struct{ stderr string }

func (e *sshRefusal) Error() string { return Printable(e.stderr) }

// Refused is the message of a remote that refuses a request.
type Refused struct{ Message string }

func (e *Refused) Error() string { return e.Message }

// task is the purpose of a conversation, as in error messages.
type task string

const (
	listing  task = "listing references from"
	fetching task = "fetching from"
	pushing  task = "pushing to"
)

// verb returns the task without the preposition.
func (t task) verb() string { return string(t[:strings.LastIndexByte(string(t), ' ')]) }

// permission returns what the credentials must allow.
func (t task) permission() string {
	if t == pushing {
		return "push to"
	}
	return "read"
}

// newLink returns the transport for a remote. It does not open a connection.
func newLink(remote Remote, service string, counts *counts) (link, error) {
	u, err := ParseURL(remote.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" {
		return newSSH(remote, service, u, counts)
	}
	return newHTTP(remote, service, u, counts)
}

// ParseURL parses the URL of a repository. The error is a fault.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		f := fault.New(meta.URLInvalidReason, "spec.url is not the URL of a repository").Final()
		if at, path, ok := SCP(raw); ok {
			return nil, f.WithHint("Use ssh://%s/%s", at, path)
		}
		return nil, f.WithHint("Use https://host/path or ssh://git@host/path")
	}
	switch u.Scheme {
	case "http", "https", "ssh":
		return u, nil
	}
	return nil, fault.New(meta.URLInvalidReason, "spec.url has the unsupported scheme '%s'", Printable(u.Scheme)).
		WithHint("Use https, http or ssh").Final()
}

// SCP parses the form git@host:path, which is not a URL.
func SCP(s string) (at, path string, ok bool) {
	at, path, ok = strings.Cut(s, ":")
	return at, strings.TrimPrefix(path, "/"), ok && strings.Contains(at, "@") && !strings.ContainsAny(at, "/ ") &&
		path != ""
}

// explain returns the fault for an error.
func (r Remote) explain(ctx context.Context, err error, operation task) error {
	if f := fault.As(err); f != nil {
		f.Reason = cmp.Or(f.Reason, meta.GitOperationFailedReason) // faults of egress have none
		return err
	}
	where := r.where()
	if ended := ctx.Err(); errors.Is(ended, context.Canceled) {
		return gitFault("%s %s was canceled", operation, where).Because(ended)
	} else if ended != nil || errors.Is(err, context.DeadlineExceeded) {
		return gitFault("%s %s timed out", operation, where).WithHint("Check the network, or raise spec.timeout")
	}
	for _, explainKind := range []func(error, string, task) *fault.Fault{
		explainStatus, explainLogin, explainAnswer, explainNetwork,
	} {
		if f := explainKind(err, where, operation); f != nil {
			f.What = r.withoutSecrets(f.What) // the remote may repeat what we sent
			var status *statusError
			if errors.As(err, &status) && isAnonymous(r.Credentials) {
				f.Hint = cmp.Or(anonymousHint(status.code), f.Hint)
			}
			return f
		}
	}
	return gitFault("%s %s failed", operation, where).Because(errors.New(Printable(r.withoutSecrets(err.Error()))))
}

// where returns the URL without secrets.
func (r Remote) where() string { return fault.RedactURL(r.URL) }

// isAnonymous reports whether nothing is set that HTTP could log in with.
func isAnonymous(c auth.GitCredentials) bool {
	return c.Username+c.Password+c.BearerToken == "" && len(c.ClientCert) == 0
}

// anonymousHint returns what to do about a status of a request without a login, or "".
func anonymousHint(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "No login is set: set spec.secretRef, or correct spec.url"
	case http.StatusNotFound:
		return "Check spec.url. If the repository is private, set spec.secretRef"
	}
	return ""
}

func explainStatus(err error, where string, operation task) *fault.Fault {
	var status *statusError
	if !errors.As(err, &status) {
		return nil
	}
	switch status.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(meta.AuthenticationFailedReason, "%s refused the login (HTTP %d)", where, status.code).
			WithHint("Check the Secret of spec.secretRef, and that its user has permission to %s the repository",
				operation.permission())
	case http.StatusProxyAuthRequired:
		return fault.New(meta.AuthenticationFailedReason, "the proxy for %s refused the login", where).
			WithHint("Check the Secret of spec.proxySecretRef")
	case http.StatusNotFound, http.StatusGone:
		return gitFault("repository %s not found", where).
			WithHint("Check spec.url, and that the credentials of spec.secretRef have access to it")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return gitFault("%s is rate limiting us (HTTP %d)", where, status.code).
			WithHint("The request is retried later; the last artifact stays available").After(status.after)
	}
	return gitFault("%s %s failed", operation, where).Because(status).After(status.after)
}

func explainLogin(err error, where string, operation task) *fault.Fault {
	var key *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	var refused *ssh.ExitError
	switch {
	case errors.As(err, &key) && len(key.Want) == 0:
		return fault.New(meta.AuthenticationFailedReason, "the host key of '%s' is unknown", host(where)).
			WithHint("Check the key, then add the output of %s to known_hosts in the Secret of spec.secretRef",
				keyscanAt(where))
	case errors.As(err, &key):
		return fault.New(meta.AuthenticationFailedReason, "the host key of '%s' is not the one in known_hosts",
			host(where)).
			WithHint("The host has a new key, or the connection is intercepted: verify the key before you change " +
				"known_hosts in the Secret of spec.secretRef")
	case errors.As(err, &revoked):
		return fault.New(meta.AuthenticationFailedReason, "the host key of '%s' is revoked in known_hosts",
			host(where)).
			WithHint("Find out why the key was revoked before you trust the host")
	case strings.Contains(err.Error(), "ssh: unable to authenticate"): // the library has no type for this error
		return fault.New(meta.AuthenticationFailedReason, "%s refused the SSH key", where).
			WithHint("Add the public key to the repository as a deploy key with permission to %s it, or correct "+
				"'identity' in the Secret of spec.secretRef", operation.permission())
	case strings.Contains(err.Error(), "no common algorithm for host key"):
		return fault.New(meta.AuthenticationFailedReason, "'%s' has no host key of a type that known_hosts contains",
			host(where)).
			WithHint("Add the output of %s to known_hosts in the Secret of spec.secretRef", keyscanAt(where))
	case errors.As(err, &refused):
		return gitFault("%s ended the session", where).Because(refused)
	}
	return nil
}

func explainAnswer(err error, where string, operation task) *fault.Fault {
	var line *pktline.ErrorLine
	var data *packp.ErrUnexpectedData
	var refused *sshRefusal
	switch {
	case errors.Is(err, errEmpty):
		return gitFault("repository %s is empty", where).WithHint("Push a first commit")
	case errors.As(err, &line):
		return gitFault("%s refuses %s", where, operation.verb()).Because(&Refused{Printable(line.Text)})
	case errors.As(err, &refused):
		return gitFault("%s refused the request: %s", where, Printable(refused.stderr)).
			WithHint("Check spec.url, and that the SSH key has permission to %s the repository", operation.permission())
	case errors.Is(err, errObjectFormat):
		return gitFault("repository %s has object-format=sha256, and only repositories with SHA-1 hashes can be used",
			where).
			WithHint("Push to a repository that was created by 'git init --object-format=sha1', or use an " +
				"OCIRepository")
	case errors.As(err, &data), errors.Is(err, pktline.ErrInvalidPktLen), errors.Is(err, packp.ErrEmptyInput),
		errors.Is(err, errNotGit):
		return gitFault("%s did not answer like a git server", where).Because(errNotGit).
			WithHint("Check spec.url: it may be the address of a web page or a login page")
	case errors.Is(err, errRedirect):
		return gitFault("%s %s failed", operation, where).Because(err).
			WithHint("Set spec.url to the address that the server redirects to")
	case errors.Is(err, errTooLarge):
		return gitFault("%s %s failed", operation, where).Because(err).
			WithHint("Make the repository smaller, or use another source")
	case errors.Is(err, errShallow):
		return gitFault("%s %s failed", operation, where).Because(err).
			WithHint("Update the git server: it names commits that the answer does not need")
	}
	return nil
}

// explainNetwork returns faults for SSH connections. Package egress returns those for HTTP.
func explainNetwork(err error, where string, operation task) *fault.Fault {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return gitFault("DNS has no record of host '%s'", dns.Name).
			WithHint("Check spec.url, and the cluster's DNS")
	case errors.As(err, &dns):
		return gitFault("DNS lookup of host '%s' failed", dns.Name).WithHint("Check the cluster's DNS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return gitFault("cannot connect to host '%s'", host(where)).Because(errors.New("connection refused")).
			WithHint("Check that the git server is running, and the port of spec.url")
	case errors.As(err, &op) && op.Timeout():
		return gitFault("host '%s' does not answer", host(where)).
			WithHint("Check the network path to it, and the port of spec.url")
	case errors.As(err, &op):
		// the cause without ports, which change with each connection
		return gitFault("%s %s was interrupted", operation, where).Because(fmt.Errorf("%s: %w", op.Op, op.Err))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return gitFault("%s %s was interrupted", operation, where).Because(io.ErrUnexpectedEOF)
	}
	return nil
}

func gitFault(format string, args ...any) *fault.Fault {
	return fault.New(meta.GitOperationFailedReason, format, args...)
}

// host returns the host and port of a valid URL.
func host(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		return where
	}
	return u.Host
}

// keyscanAt returns the command that prints the keys of the host of an URL.
func keyscanAt(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		return "ssh-keyscan HOST"
	}
	return keyscan(u)
}

// keyscan returns the command that prints the keys of a host.
func keyscan(u *url.URL) string {
	if port := u.Port(); port != "" && port != "22" {
		return "ssh-keyscan -p " + port + " " + u.Hostname()
	}
	return "ssh-keyscan " + u.Hostname()
}

// withoutSecrets replaces the secrets in a text.
func (r Remote) withoutSecrets(text string) string {
	text = strings.ReplaceAll(text, r.URL, fault.RedactURL(r.URL))
	secrets := []string{r.Credentials.Password, r.Credentials.BearerToken}
	for _, raw := range []string{r.URL, r.ProxyURL} {
		if u, err := url.Parse(raw); err == nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	return redact.Text(text, secrets...)
}

// maxPrinted is the maximum size, in bytes, of a quoted message of a remote.
const maxPrinted = 300

// Printable returns a message of a remote as one short line.
func Printable(s string) string { return excerpt.Line(s, maxPrinted) }
