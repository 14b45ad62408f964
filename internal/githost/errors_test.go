package githost

import (
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// hosts are addresses and Secrets of each kind; every secret value is s3cret.
var hosts = map[Kind]string{GitHub: "https://github.com/o/private", GitLab: "https://gitlab.com/o/private",
	Gitea:     "https://gitea.example.com/o/private",
	Bitbucket: "https://bitbucket.org/o/private", BitbucketServer: "https://git.example.com/scm/o/private.git",
	AzureDevOps: "https://dev.azure.com/o/p/_git/private"}

// TestRefusals: what a host may answer becomes a fault that tells what to do, and holds neither credentials
// nor the URL.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		header map[string]string
		answer string
		want   string
		final  bool
		wait   time.Duration
	}{
		"no login":      {401, nil, `{"message":"Bad credentials s3cret"}`, `"Bad credentials ***"). `, true, 0},
		"no permission": {403, nil, `{"message":"Resource not accessible"}`, "needs the permission", true, 0},
		"limited by 403": {403, map[string]string{"Retry-After": "30"}, `{}`, "no more requests", false,
			30 * time.Second},
		"not found": {404, nil, `{"message":"Not Found"}`, "may see the repository", true, 0},
		"not valid": {422, nil, `{"message":"Validation Failed","errors":[{"field":"sha","code":"invalid"}]}`,
			"Validation Failed", true, 0},
		"limited": {429, map[string]string{"Retry-After": "120"}, `{}`, "no more requests", false,
			2 * time.Minute},
		"limited, no time":    {429, nil, `slow down`, "no more requests", false, time.Minute},
		"broken":              {500, nil, `<html>s3cret`, "failed at", false, 0},
		"down":                {503, map[string]string{"Retry-After": "7"}, ``, "failed at", false, 7 * time.Second},
		"a page to log in at": {203, nil, `<html>`, "has expired", true, 0},
		"not JSON":            {200, nil, `<html>s3cret</html>`, "is not what", true, 0},
		"other JSON":          {200, nil, `"s3cret"`, "is not what", true, 0},
		"endless":             {200, nil, strings.Repeat("s3cret", 3<<20), "is not what", true, 0},
		"moved": {301, map[string]string{}, `{"message":"Moved to https://internal.example.com/s3cret"}`,
			"have moved", true, 0},
		"long words": {400, nil, `{"error":{"message":"` + strings.Repeat(`word\n`, 1000) + `"}}`, "word",
			true, 0},
		"words in depth": {400, nil, strings.Repeat(`{"message":`, 5000) + `"x"` + strings.Repeat(`}`, 5000),
			"status 400", true, 0},
	} {
		for kind, address := range hosts {
			host := client(t, answering(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			}), kind, address, "token", "s3cret")
			if c.status == http.StatusNotFound && (kind == Bitbucket || kind == BitbucketServer) {
				continue // where it means that nothing was said of the commit yet
			}
			check := func(err error) {
				t.Helper()
				f := fault.As(err)
				if f == nil {
					t.Errorf("%s, %s: %v", kind, name, err)
					return
				}
				text := f.Error()
				if f.Terminal != c.final || f.RetryAfter != c.wait {
					t.Errorf("%s, %s: terminal %v, after %s: %s", kind, name, f.Terminal, f.RetryAfter, text)
				}
				if !strings.Contains(text+". ", strings.TrimSuffix(c.want, "). ")) ||
					strings.Contains(text, "s3cret") || strings.Contains(text, "private") ||
					strings.Contains(text, "internal") || strings.ContainsAny(text, "\n<") || len(text) > 500 {
					t.Errorf("%s, %s: %s", kind, name, text)
				}
			}
			check(host.SetStatus(within(t), Status{Commit: commit, Context: "c"}))
			_, err := host.OpenRequest(within(t), Request{Head: "a", Base: "b", Title: "t"})
			check(err)
		}
	}
}

func sshKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// TestHostsThatAreNotThere: the error of the network holds no URL.
func TestHostsThatAreNotThere(t *testing.T) {
	t.Parallel()
	for kind, address := range hosts {
		err := client(t, detour("http://127.0.0.1:1"), kind, address, "token", "s3cret").
			SetStatus(within(t), Status{Commit: commit, Context: "c"})
		if f := fault.As(err); f == nil || f.Terminal || strings.Contains(err.Error(), "private") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	asked := func(kind Kind, o Options) (login string, err error) {
		t.Helper()
		if o.Repository, err = Parse(kind, hosts[kind]); err != nil {
			t.Fatal(err)
		}
		o.Transport = answering(t, func(w http.ResponseWriter, r *http.Request) {
			login = r.Header.Get("Authorization")
			w.WriteHeader(http.StatusTeapot)
		})
		c, err := New(o)
		if err != nil {
			return "", err
		}
		if err := c.SetStatus(within(t), Status{Commit: commit, Context: "c"}); err == nil {
			t.Error("a teapot took a status")
		}
		return login, nil
	}
	secret := func(pairs ...string) map[string][]byte {
		m := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = []byte(pairs[i+1])
		}
		return m
	}
	identity := func() Login { return always(auth.GitCredentials{BearerToken: "entra"}) }()
	for name, c := range map[string]struct {
		kind Kind
		o    Options
		want string // a part of the error when it begins with !
	}{
		"a line break after the token": {GitHub, Options{Secret: secret("token", "s3cret\n")},
			"Bearer s3cret"},
		"the Secret of a clone": {GitLab,
			Options{Secret: secret("username", "git", "password", "s3cret")}, "Bearer s3cret"},
		"the username of the object": {BitbucketServer,
			Options{Username: "jane", Secret: secret("password", "s3cret", "username", "joe")},
			"Basic amFuZTpzM2NyZXQ="},
		"username and password": {Bitbucket,
			Options{Secret: secret("username", "jane", "password", "s3cret")}, "Basic amFuZTpzM2NyZXQ="},
		"the token of a clone": {GitHub,
			Options{Git: auth.GitCredentials{Username: "x-access-token", Password: "ghs"}}, "Bearer ghs"},
		"the password of a clone": {AzureDevOps,
			Options{Git: auth.GitCredentials{Username: "jane", Password: "s3cret"}}, "Basic OnMzY3JldA=="},
		"the bearer token of a clone": {BitbucketServer,
			Options{Git: auth.GitCredentials{BearerToken: "http-token"}}, "Bearer http-token"},
		"a clone by a key that has a passphrase": {GitHub,
			Options{Git: auth.GitCredentials{Username: "git", Password: "s3cret", Identity: sshKey(t)}},
			"!the key token in"},
		"workload identity": {AzureDevOps, Options{Identity: identity}, "Bearer entra"},
		"a token goes before workload identity": {AzureDevOps,
			Options{Identity: identity, Secret: secret("token", "s3cret")}, "Basic OnMzY3JldA=="},
		"nothing":                               {Gitea, Options{}, "!the key token in"},
		"workload identity is for Azure DevOps": {GitHub, Options{Identity: identity}, "!the key token in"},
		"a password without a name": {BitbucketServer, Options{Secret: secret("password", "s3cret")},
			"!or username and password"},
		"nothing for Azure DevOps": {AzureDevOps, Options{}, "!the key token in"},
		"an app without a key": {GitHub,
			Options{Secret: secret("githubAppID", "1", "githubAppInstallationID", "2")}, "!githubAppPrivateKey"},
		"an app password is no token of GitHub's": {GitHub, Options{Secret: secret("token", "user:s3cret")},
			"Bearer user:s3cret"},
	} {
		got, err := asked(c.kind, c.o)
		if want, fails := strings.CutPrefix(c.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
