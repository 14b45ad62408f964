package githost

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// hosts are addresses of each kind.
var hosts = map[Kind]string{
	GitHub: "https://github.com/o/private", GitLab: "https://gitlab.com/o/private",
	Gitea: "https://gitea.example.com/o/private", Bitbucket: "https://bitbucket.org/o/private",
	BitbucketServer: "https://git.example.com/scm/o/private.git", AzureDevOps: "https://dev.azure.com/o/p/_git/private",
}

// responseCases are error responses and the expected faults.
var responseCases = map[string]struct {
	status   int
	header   map[string]string
	response string
	want     string
	terminal bool
	wait     time.Duration
}{
	"invalid login": {status: 401, terminal: true, want: `"Bad credentials ***"). `,
		response: `{"message":"Bad credentials s3cret"}`},
	"missing permission": {status: 403, terminal: true, want: "required permission",
		response: `{"message":"Resource not accessible"}`},
	"rate limit with 403": {status: 403, header: map[string]string{"Retry-After": "30"}, wait: 30 * time.Second,
		want:     "rate limit",
		response: `{}`},
	"not found": {status: 404, terminal: true, want: "access to the repository",
		response: `{"message":"Not Found"}`},
	"validation error": {status: 422, terminal: true, want: "Validation Failed",
		response: `{"message":"Validation Failed","errors":[{"field":"sha","code":"invalid"}]}`},
	"rate limit": {status: 429, header: map[string]string{"Retry-After": "120"}, wait: 2 * time.Minute,
		want:     "rate limit",
		response: `{}`},
	"rate limit without Retry-After": {status: 429, wait: time.Minute, want: "rate limit",
		response: `slow down`},
	"server error": {status: 500, want: "failed at",
		response: `<html>s3cret`},
	"unavailable": {status: 503, header: map[string]string{"Retry-After": "7"}, wait: 7 * time.Second,
		want:     "failed at",
		response: ``},
	"login page": {status: 203, terminal: true, want: "has expired",
		response: `<html>`},
	"HTML instead of JSON": {status: 200, terminal: true, want: "unexpected response",
		response: `<html>s3cret</html>`},
	"JSON of another type": {status: 200, terminal: true, want: "unexpected response",
		response: `"s3cret"`},
	"endless response": {status: 200, terminal: true, want: "unexpected response",
		response: strings.Repeat("s3cret", 3<<20)},
	"redirect": {status: 301, terminal: true, want: "The repository may have moved; correct the address",
		response: `{"message":"Moved to https://internal.example.com/s3cret"}`},
	"long message": {status: 400, terminal: true, want: "word",
		response: `{"error":{"message":"` + strings.Repeat(`word\n`, 1000) + `"}}`},
	"deeply nested message": {status: 400, terminal: true, want: "status 400",
		response: strings.Repeat(`{"message":`, 5000) + `"x"` + strings.Repeat(`}`, 5000)},
}

// TestResponseErrors checks the fault of each kind of error response. It has a hint, but no credentials and no URL.
func TestResponseErrors(t *testing.T) {
	t.Parallel()
	for name, c := range responseCases {
		for kind, address := range hosts {
			host := newClient(t, startServer(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.response)
			}), kind, address, "token", "s3cret")
			if c.status == http.StatusNotFound && (kind == Bitbucket || kind == BitbucketServer) {
				continue // means that the commit has no status yet
			}
			check := func(err error) {
				t.Helper()
				f := fault.As(err)
				if f == nil {
					t.Errorf("%s, %s: got %v, want a fault", kind, name, err)
					return
				}
				text := f.Error()
				if f.Terminal != c.terminal || f.RetryAfter != c.wait {
					t.Errorf("%s, %s: got Terminal %v, RetryAfter %s: %s", kind, name, f.Terminal, f.RetryAfter, text)
				}
				if !strings.Contains(text+". ", strings.TrimSuffix(c.want, "). ")) ||
					strings.Contains(text, "s3cret") || strings.Contains(text, "private") ||
					strings.Contains(text, "internal") || strings.ContainsAny(text, "\n<") || len(text) > 500 {
					t.Errorf("%s, %s: got error %q, want %q", kind, name, text, c.want)
				}
			}
			check(host.SetStatus(testContext(t), Status{Commit: commit, Context: "c"}))
			_, err := host.OpenRequest(testContext(t), Request{Head: "a", Base: "b", Title: "t"})
			check(err)
		}
	}
}

func sshKey(t *testing.T) *sshkey.Private {
	t.Helper()
	private, _ := sshkeys.New(t)
	key, err := sshkey.Parse(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestUnreachableHosts checks that the error has no URL and no credentials.
func TestUnreachableHosts(t *testing.T) {
	t.Parallel()
	for kind, address := range hosts {
		err := newClient(t, redirectTo("http://127.0.0.1:1"), kind, address, "token", "s3cret").
			SetStatus(testContext(t), Status{Commit: commit, Context: "c"})
		if f := fault.As(err); f == nil || f.Terminal || strings.Contains(err.Error(), "private") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

type loginCase struct {
	kind    Kind
	options Options
	want    string // with the prefix !: a part of the error
}

// loginCases are logins and the expected Authorization headers.
func loginCases(t *testing.T) map[string]loginCase {
	secret := func(pairs ...string) map[string][]byte {
		m := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = []byte(pairs[i+1])
		}
		return m
	}
	identity := staticLogin(auth.GitCredentials{BearerToken: "entra"})
	return map[string]loginCase{
		"token with line break": {kind: GitHub, want: "Bearer s3cret",
			options: Options{Secret: secret("token", "s3cret\n")}},
		"Secret of a clone": {kind: GitLab, want: "Bearer s3cret",
			options: Options{Secret: secret("username", "git", "password", "s3cret")}},
		"username of the object": {kind: BitbucketServer, want: "Basic amFuZTpzM2NyZXQ=",
			options: Options{Username: "jane", Secret: secret("password", "s3cret", "username", "joe")}},
		"username and password": {kind: Bitbucket, want: "Basic amFuZTpzM2NyZXQ=",
			options: Options{Secret: secret("username", "jane", "password", "s3cret")}},
		"token of a clone": {kind: GitHub, want: "Bearer ghs",
			options: Options{Git: auth.GitCredentials{Username: "x-access-token", Password: "ghs"}}},
		"password of a clone": {kind: AzureDevOps, want: "Basic OnMzY3JldA==",
			options: Options{Git: auth.GitCredentials{Username: "jane", Password: "s3cret"}}},
		"bearer token of a clone": {kind: BitbucketServer, want: "Bearer http-token",
			options: Options{Git: auth.GitCredentials{BearerToken: "http-token"}}},
		"clone with SSH key and passphrase": {kind: GitHub, want: "!the key token in",
			options: Options{Git: auth.GitCredentials{Username: "git", Password: "s3cret", Identity: sshKey(t)}}},
		"workload identity": {kind: AzureDevOps, want: "Bearer entra",
			options: Options{Identity: identity}},
		"token overrides workload identity": {kind: AzureDevOps, want: "Basic OnMzY3JldA==",
			options: Options{Identity: identity, Secret: secret("token", "s3cret")}},
		"no login": {kind: Gitea, want: "!the key token in",
			options: Options{}},
		"workload identity for another host": {kind: GitHub, want: "!the key token in",
			options: Options{Identity: identity}},
		"password without username": {kind: BitbucketServer, want: "!or username and password",
			options: Options{Secret: secret("password", "s3cret")}},
		"no login for Azure DevOps": {kind: AzureDevOps, want: "!the key token in",
			options: Options{}},
		"GitHub App without key": {kind: GitHub, want: "!githubAppPrivateKey",
			options: Options{Secret: secret("githubAppID", "1", "githubAppInstallationID", "2")}},
		"token with a colon": {kind: GitHub, want: "Bearer user:s3cret",
			options: Options{Secret: secret("token", "user:s3cret")}},
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	loginHeader := func(kind Kind, o Options) (login string, err error) {
		t.Helper()
		if o.Repository, err = Parse(kind, hosts[kind]); err != nil {
			t.Fatal(err)
		}
		o.Transport = startServer(t, func(w http.ResponseWriter, r *http.Request) {
			login = r.Header.Get("Authorization")
			w.WriteHeader(http.StatusTeapot)
		})
		c, err := New(o)
		if err != nil {
			return "", err
		}
		if err := c.SetStatus(testContext(t), Status{Commit: commit, Context: "c"}); err == nil {
			t.Error("got no error for status 418")
		}
		return login, nil
	}
	for name, c := range loginCases(t) {
		got, err := loginHeader(c.kind, c.options)
		if want, fails := strings.CutPrefix(c.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
