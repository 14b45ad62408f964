package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintFitsTheHTTPStatus(t *testing.T) {
	login := auth.GitCredentials{Username: "me", Password: "secret"}
	for name, c := range map[string]struct {
		status int
		login  auth.GitCredentials
		task   task
		want   string
	}{
		"wrong login, read": {status: http.StatusUnauthorized, login: login, task: listing,
			want: "Check the Secret of spec.secretRef, and that its user has permission to read the repository"},
		"wrong login, push": {status: http.StatusForbidden, login: login, task: pushing,
			want: "Check the Secret of spec.secretRef, and that its user has permission to push to the repository"},
		"status 401 without a login": {status: http.StatusUnauthorized, task: listing,
			want: "No login is set: set spec.secretRef, or correct spec.url"},
		"status 403 without a login": {status: http.StatusForbidden, task: listing,
			want: "No login is set: set spec.secretRef, or correct spec.url"},
		"status 404 without a login": {status: http.StatusNotFound, task: listing,
			want: "Check spec.url. If the repository is private, set spec.secretRef"},
		"status 404": {status: http.StatusNotFound, login: login, task: listing,
			want: "Check spec.url, and that the credentials of spec.secretRef have access to it"},
		"proxy": {status: http.StatusProxyAuthRequired, task: listing, want: "Check the Secret of spec.proxySecretRef"},
		"rate limit": {status: http.StatusTooManyRequests, task: listing,
			want: "The request is retried later; the last artifact stays available"},
		"another status": {status: http.StatusBadGateway, login: login, task: listing, want: ""},
	} {
		r := Remote{URL: "https://git.example/app", Credentials: c.login}
		err := r.explain(t.Context(), &statusError{code: c.status}, c.task)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", name, err, c.want)
		}
	}
}

func TestHintFitsTheError(t *testing.T) {
	r := Remote{URL: "ssh://git@git.example:2222/app"}
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"unknown host key": {err: &knownhosts.KeyError{}, want: "Check the key, then add the output of ssh-keyscan " +
			"-p 2222 git.example to known_hosts in the Secret of spec.secretRef"},
		"other host key": {err: &knownhosts.KeyError{Want: []knownhosts.KnownKey{{}}},
			want: "The host has a new key, or the connection is intercepted: verify the key before you change " +
				"known_hosts in the Secret of spec.secretRef"},
		"revoked host key": {err: &knownhosts.RevokedError{},
			want: "Find out why the key was revoked before you trust the host"},
		"SSH key": {err: errors.New("ssh: unable to authenticate, attempted methods [publickey]"),
			want: "Add the public key to the repository as a deploy key with permission to read it, or correct " +
				"'identity' in the Secret of spec.secretRef"},
		"type of host key": {err: errors.New("ssh: no common algorithm for host key"),
			want: "Add the output of ssh-keyscan -p 2222 git.example to known_hosts in the Secret of spec.secretRef"},
		"empty": {err: errEmpty, want: "Push a first commit"},
		"SSH service": {err: &sshRefusal{stderr: "no such repository"},
			want: "Check spec.url, and that the SSH key has permission to read the repository"},
		"web page": {err: errNotGit, want: "Check spec.url: it may be the address of a web page or a login page"},
		"SHA-256": {err: errObjectFormat, want: "Push to a repository that was created by 'git init " +
			"--object-format=sha1', or use an OCIRepository"},
		"redirect": {err: errRedirect, want: "Set spec.url to the address that the server redirects to"},
		"large pack": {err: fmt.Errorf("%w of more than 1 MiB", errTooLarge),
			want: "Make the repository smaller, or use another source"},
		"no name": {err: dial(&net.DNSError{Name: "git.example", IsNotFound: true}),
			want: "Check spec.url, and the cluster's DNS"},
		"no answer of DNS": {err: dial(&net.DNSError{Name: "git.example", IsTimeout: true}),
			want: "Check the cluster's DNS"},
		"refused connection": {err: dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
			want: "Check that the git server is running, and the port of spec.url"},
		"no answer": {err: dial(os.ErrDeadlineExceeded),
			want: "Check the network path to it, and the port of spec.url"},
		"timeout": {err: context.DeadlineExceeded, want: "Check the network, or raise spec.timeout"},
	} {
		err := r.explain(t.Context(), c.err, fetching)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s: got %v, want the hint %q", name, err, c.want)
		}
	}
}
