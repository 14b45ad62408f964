package githost

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Login returns the credentials of a request. It is called for each request, since tokens of apps and of workload
// identity are short-lived. A personal access token is a password without a username.
type Login func(ctx context.Context) (auth.GitCredentials, error)

// loginOf returns the login from the Secret: the key token, or username and password, as each host documents them.
// The key password is accepted instead of token, so that the Secret of a clone can be used.
func loginOf(o Options) (Login, error) {
	text := func(key string) string { return strings.TrimSpace(string(o.Secret[key])) }
	kind := o.Repository.Kind
	token, username, password := text("token"), cmp.Or(o.Username, text("username")), text("password")
	bearer := func(token string) (Login, error) { return staticLogin(auth.GitCredentials{BearerToken: token}), nil }
	switch {
	case kind == GitHub && text("githubAppID") != "":
		return appLogin(o)
	case kind == Bitbucket && token != "":
		// The documented form is USERNAME:APP_PASSWORD; access tokens have no colon.
		if name, secret, ok := strings.Cut(token, ":"); ok {
			return staticLogin(auth.GitCredentials{Username: name, Password: secret}), nil
		}
		return bearer(token)
	case kind == AzureDevOps && cmp.Or(token, password) != "":
		return staticLogin(auth.GitCredentials{Password: cmp.Or(token, password)}), nil
	case token != "":
		return bearer(token)
	case (kind == Bitbucket || kind == BitbucketServer) && username != "" && password != "":
		return staticLogin(auth.GitCredentials{Username: username, Password: password}), nil
	case kind == AzureDevOps && o.Identity != nil:
		return o.Identity, nil
	case (kind == GitHub || kind == GitLab || kind == Gitea) && password != "":
		return bearer(password)
	case o.Git.BearerToken != "":
		return bearer(o.Git.BearerToken)
	case o.Git.Password != "" && o.Git.Identity == nil: // with an SSH key, it is the passphrase
		o.Secret, o.Username = map[string][]byte{"username": []byte(o.Git.Username),
			"password": []byte(o.Git.Password)}, ""
		o.Git = auth.GitCredentials{}
		return loginOf(o)
	case o.Anonymous && len(o.Secret) == 0:
		return staticLogin(auth.GitCredentials{}), nil
	}
	keys := "the key token"
	if kind == BitbucketServer || kind == Bitbucket {
		keys = "the key token, or username and password"
	}
	return nil, fault.New(meta.AuthenticationFailedReason, "no login for %s", o.Repository.Base.Host).
		WithHint("Set %s in the Secret", keys).Final()
}

func staticLogin(c auth.GitCredentials) Login {
	return func(context.Context) (auth.GitCredentials, error) { return c, nil }
}

func appLogin(o Options) (Login, error) {
	app, err := auth.GitHubAppFrom(o.Secret)
	if err != nil {
		return nil, err
	}
	apps := cmp.Or(o.Apps, &auth.GitHubApps{Clock: o.Clock})
	return func(ctx context.Context) (auth.GitCredentials, error) {
		c, err := apps.Git(ctx, app, o.Transport)
		return auth.GitCredentials{BearerToken: c.Password}, err
	}, nil
}

// authorize adds the login to a request.
func authorize(req *http.Request, kind Kind, c auth.GitCredentials) {
	switch {
	case c.BearerToken == "" && c.Username == "" && c.Password == "": // anonymous
	case c.BearerToken == "":
		req.SetBasicAuth(c.Username, c.Password)
	case kind == Gitea:
		req.Header.Set("Authorization", "token "+c.BearerToken)
	default:
		req.Header.Set("Authorization", "Bearer "+c.BearerToken)
	}
}

// GitLogin returns how git logs in with a token, as the kind of the host documents it: a user name and a password, or a
// bearer token. A token of Bitbucket may be USERNAME:APP_PASSWORD.
func (k Kind) GitLogin(token string) (username, password, bearer string) {
	name, secret, ok := strings.Cut(token, ":")
	switch {
	case k == BitbucketServer:
		return "", "", token
	case k == Bitbucket && ok:
		return name, secret, ""
	case k == Bitbucket:
		return "x-token-auth", token, ""
	}
	return "oauth2", token, ""
}
