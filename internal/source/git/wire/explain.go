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
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

var (
	errEmpty    = errors.New("the repository is empty")
	errNotGit   = errors.New("the answer is not one of git's smart protocol")
	errRedirect = errors.New("the host redirects to where it is not followed")
	errTooMuch  = errors.New("the host sends a pack")
)

// statusError is an HTTP status that is no success.
type statusError struct {
	code  int
	after time.Duration // that the host asks to wait
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP status %d %s", e.code, http.StatusText(e.code))
}

// refusal is an SSH service that ended before it said anything of the protocol.
type refusal struct{ said string }

func (e *refusal) Error() string { return Printable(e.said) }

// Refused is what a remote says when it refuses a request.
type Refused struct{ Words string }

func (e *Refused) Error() string { return e.Words }

// task is what a conversation is for, in the words of an error.
type task string

const (
	listing  task = "listing references from"
	fetching task = "fetching from"
	pushing  task = "pushing to"
)

// verb is the task without the preposition.
func (t task) verb() string { return string(t[:strings.LastIndexByte(string(t), ' ')]) }

// right is what the login must be allowed to do.
func (t task) right() string {
	if t == pushing {
		return "push to"
	}
	return "read"
}

// newLink opens nothing yet; it refuses a URL that leads nowhere.
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

// ParseURL reads the URL of a repository. The error is a fault.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		f := fault.New(meta.URLInvalidReason, "spec.url is not the URL of a repository").Final()
		if at, path, ok := SCP(raw); ok {
			return nil, f.WithHint("Write it as ssh://%s/%s", at, path)
		}
		return nil, f.WithHint("Use https://host/path or ssh://git@host/path")
	}
	switch u.Scheme {
	case "http", "https", "ssh":
		return u, nil
	}
	return nil, fault.New(meta.URLInvalidReason, "spec.url has the scheme '%s'", Printable(u.Scheme)).
		WithHint("Use https, http or ssh").Final()
}

// SCP takes git@host:path apart, which is no URL.
func SCP(s string) (at, path string, ok bool) {
	at, path, ok = strings.Cut(s, ":")
	return at, strings.TrimPrefix(path, "/"), ok && strings.Contains(at, "@") && !strings.ContainsAny(at, "/ ") &&
		path != ""
}

// explain turns an error into a fault: what failed, and what to do.
func (r Remote) explain(ctx context.Context, err error, doing task) error {
	if f := fault.As(err); f != nil {
		f.Reason = cmp.Or(f.Reason, meta.GitOperationFailedReason) // what the way out says has none
		return err
	}
	where := r.where()
	if ended := ctx.Err(); errors.Is(ended, context.Canceled) {
		return gitFault("%s %s was given up", doing, where).Because(ended)
	} else if ended != nil || errors.Is(err, context.DeadlineExceeded) {
		return gitFault("%s %s took too long", doing, where).WithHint("Check the network, or raise spec.timeout")
	}
	for _, kind := range []func(error, string, task) *fault.Fault{
		explainStatus, explainLogin, explainAnswer, explainNetwork,
	} {
		if f := kind(err, where, doing); f != nil {
			f.What = r.withoutSecrets(f.What) // a remote may repeat what it was sent
			return f
		}
	}
	return gitFault("%s %s failed", doing, where).Because(errors.New(Printable(r.withoutSecrets(err.Error()))))
}

// where is the URL without what is secret in it.
func (r Remote) where() string { return fault.RedactURL(r.URL) }

func explainStatus(err error, where string, doing task) *fault.Fault {
	var status *statusError
	if !errors.As(err, &status) {
		return nil
	}
	switch status.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(meta.AuthenticationFailedReason, "%s refused the login (%d)", where, status.code).
			WithHint("Check the Secret of spec.secretRef, and that its user may %s the repository", doing.right())
	case http.StatusProxyAuthRequired:
		return fault.New(meta.AuthenticationFailedReason, "the proxy on the way to %s refused the login", where).
			WithHint("Check the Secret of spec.proxySecretRef")
	case http.StatusNotFound, http.StatusGone:
		return gitFault("repository %s not found", where).
			WithHint("Check spec.url, and that the credentials of spec.secretRef may see it")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return gitFault("%s asks to come back later (%d)", where, status.code).
			WithHint("It is tried again then, and what was fetched before keeps being served").After(status.after)
	}
	return gitFault("%s %s failed", doing, where).Because(status).After(status.after)
}

func explainLogin(err error, where string, doing task) *fault.Fault {
	var key *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	var refused *ssh.ExitError
	switch {
	case errors.As(err, &key) && len(key.Want) == 0:
		return fault.New(meta.AuthenticationFailedReason, "the host key of %s is unknown", host(where)).
			WithHint("Check the key, then add the output of ssh-keyscan %s to known_hosts in the Secret of "+
				"spec.secretRef", host(where))
	case errors.As(err, &key):
		return fault.New(meta.AuthenticationFailedReason, "the host key of %s is not the one in known_hosts",
			host(where)).
			WithHint("Either the host has a new key, or somebody stands in between: check before you change " +
				"known_hosts in the Secret of spec.secretRef")
	case errors.As(err, &revoked):
		return fault.New(meta.AuthenticationFailedReason, "the host key of %s is revoked in known_hosts", host(where)).
			WithHint("Do not trust the host before you know why")
	case strings.Contains(err.Error(), "ssh: unable to authenticate"): // the library has no type for it
		return fault.New(meta.AuthenticationFailedReason, "%s refused the SSH key", where).
			WithHint("Add the public key to the repository as a deploy key that may %s it, or correct 'identity' in "+
				"the Secret of spec.secretRef", doing.right())
	case strings.Contains(err.Error(), "no common algorithm for host key"):
		return fault.New(meta.AuthenticationFailedReason, "%s has no host key of a kind that known_hosts lists",
			host(where)).
			WithHint("Add the output of ssh-keyscan %s to known_hosts in the Secret of spec.secretRef", host(where))
	case errors.As(err, &refused):
		return gitFault("%s ended the session", where).Because(refused)
	}
	return nil
}

func explainAnswer(err error, where string, doing task) *fault.Fault {
	var line *pktline.ErrorLine
	var data *packp.ErrUnexpectedData
	var refused *refusal
	switch {
	case errors.Is(err, errEmpty):
		return gitFault("repository %s is empty", where).WithHint("Push a first commit")
	case errors.As(err, &line):
		return gitFault("%s refuses %s", where, doing.verb()).Because(&Refused{Printable(line.Text)})
	case errors.As(err, &refused):
		return gitFault("%s refuses: %s", where, Printable(refused.said)).
			WithHint("Check spec.url, and that the SSH key may %s the repository", doing.right())
	case errors.As(err, &data), errors.Is(err, pktline.ErrInvalidPktLen), errors.Is(err, packp.ErrEmptyInput),
		errors.Is(err, errNotGit):
		return gitFault("%s does not answer as a git server", where).Because(errNotGit).
			WithHint("Check spec.url: it may lead to a web page or a login page")
	case errors.Is(err, errRedirect), errors.Is(err, errTooMuch):
		return gitFault("%s %s failed", doing, where).Because(err).
			WithHint("Check spec.url, and what the repository holds")
	}
	return nil
}

// explainNetwork is for SSH: what goes over HTTP, egress explains.
func explainNetwork(err error, where string, doing task) *fault.Fault {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return gitFault("host %s is unknown", dns.Name).WithHint("Check spec.url, and the cluster's DNS")
	case errors.As(err, &dns):
		return gitFault("cannot look the host %s up", dns.Name).WithHint("Check the cluster's DNS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return gitFault("cannot connect to host '%s'", host(where)).Because(errors.New("connection refused")).
			WithHint("Check that the git server is running, and the port of spec.url")
	case errors.As(err, &op) && op.Timeout():
		return gitFault("%s does not answer", host(where)).
			WithHint("Check the network on the way, and the port in spec.url")
	case errors.As(err, &op):
		// no port that changes every time
		return gitFault("%s %s broke off", doing, where).Because(fmt.Errorf("%s: %w", op.Op, op.Err))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return gitFault("%s %s broke off", doing, where).Because(io.ErrUnexpectedEOF)
	}
	return nil
}

func gitFault(format string, args ...any) *fault.Fault {
	return fault.New(meta.GitOperationFailedReason, format, args...)
}

// host returns host and port of a URL that is known to be good.
func host(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		return where
	}
	return u.Host
}

// withoutSecrets blots out what is secret in a text.
func (r Remote) withoutSecrets(text string) string {
	text = strings.ReplaceAll(text, r.URL, fault.RedactURL(r.URL))
	secrets := []string{r.Credentials.Password, r.Credentials.BearerToken}
	for _, raw := range []string{r.URL, r.ProxyURL} {
		if u, err := url.Parse(raw); err == nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// maxPrinted bounds, in bytes, what is repeated of a remote's words.
const maxPrinted = 300

// Printable makes one short line of what a remote says.
func Printable(s string) string { return excerpt.Line(s, maxPrinted) }
