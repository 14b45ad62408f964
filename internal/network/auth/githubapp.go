package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	githubAPI = "https://api.github.com"
	// assertionTTL is the validity of the app's JSON web token. GitHub accepts ten minutes at most.
	assertionTTL = 5 * time.Minute
	// clockSkew is how much GitHub's clock may be behind ours.
	clockSkew = time.Minute
)

// GitHubApp is a GitHub App and its installation for an owner of repositories.
type GitHubApp struct {
	id           string
	installation string   // ID; looked up by owner when empty
	owner        string   // organization or user
	api          *url.URL // https://api.github.com, or https://HOST/api/v3
	key          *rsa.PrivateKey
	identity     cacheKey // digest of the other fields
}

// GitHubAppFrom reads an app from the data of a Secret: githubAppID, githubAppPrivateKey (in PEM),
// githubAppInstallationID or githubAppInstallationOwner, and githubAppBaseURL for a GitHub Enterprise Server.
// The error is a fault.
func GitHubAppFrom(data map[string][]byte) (*GitHubApp, error) {
	invalid := func(what, hint string) (*GitHubApp, error) {
		return nil, fault.New(meta.AuthenticationFailedReason, "the Secret of the GitHub App %s", what).
			WithHint("%s", hint)
	}
	text := func(key string) string { return strings.TrimSpace(string(data[key])) }
	a := &GitHubApp{id: text("githubAppID"), installation: text("githubAppInstallationID"),
		owner: text("githubAppInstallationOwner")}
	if !isID(a.id) {
		return invalid("has no number in the key githubAppID", "Set it to the App ID that GitHub shows on the page "+
			"of the app")
	}
	if a.installation == "" && a.owner == "" {
		return invalid("needs one of the keys githubAppInstallationID and githubAppInstallationOwner",
			"Set one of them")
	}
	if a.installation != "" && !isID(a.installation) {
		return invalid("has no number in the key githubAppInstallationID",
			"Set it to the number at the end of the URL of the installation's page")
	}
	if a.owner != "" && strings.Trim(a.owner,
		"-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return invalid("has no name of an organization or user in the key githubAppInstallationOwner",
			"Use the name in the URL of its repositories")
	}
	var err error
	if a.api, err = url.Parse(strings.TrimSuffix(cmp.Or(text("githubAppBaseURL"), githubAPI), "/")); err != nil ||
		a.api.Host == "" ||
		a.api.Scheme != "https" && a.api.Scheme != "http" {
		return invalid("has no URL in the key githubAppBaseURL", "Use the form https://HOST/api/v3")
	}
	const useOwn = "Generate a key on the app's page at GitHub, and use the file unchanged"
	if err := keysize.CheckPrivate(data["githubAppPrivateKey"]); err != nil {
		return invalid("cannot use the key githubAppPrivateKey: "+err.Error(), useOwn)
	}
	if a.key, err = rsaKey(data["githubAppPrivateKey"]); err != nil {
		return invalid("has no RSA key in PEM in the key githubAppPrivateKey", useOwn)
	}
	a.identity = keyOf(a.id, a.installation, a.owner, a.api.String(), string(data["githubAppPrivateKey"]))
	return a, nil
}

func isID(s string) bool {
	_, err := strconv.ParseUint(s, 10, 63)
	return err == nil
}

// rsaKey parses a key as GitHub issues it (PKCS #1), or converted to PKCS #8.
func rsaKey(raw []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if k, ok := key.(*rsa.PrivateKey); ok {
		return k, nil
	}
	return nil, errors.New("no RSA key")
}

// GitHubApps fetches tokens of apps, and caches them until shortly before they expire. Its zero value is ready to use.
type GitHubApps struct {
	Clock clock.PassiveClock // the real one when nil

	counts cacheCounts
	tokens cache[GitCredentials]
}

// Git returns the login to the repositories of the app's installation. The error is a fault.
func (g *GitHubApps) Git(ctx context.Context, app *GitHubApp, transport http.RoundTripper) (GitCredentials, error) {
	return g.tokens.get(ctx, cacheOptions{clock: g.Clock, counts: &g.counts}, app.identity,
		func() (GitCredentials, time.Time, error) {
			return app.login(ctx, transport, now(g.Clock))
		})
}

func (a *GitHubApp) login(ctx context.Context, transport http.RoundTripper, now time.Time) (GitCredentials, time.Time,
	error) {
	assertion, err := a.assertion(now)
	if err != nil {
		return GitCredentials{}, time.Time{}, err
	}
	client := &http.Client{Transport: transport}
	installation := a.installation
	if installation == "" {
		if installation, err = a.findInstallation(ctx, client, assertion); err != nil {
			return GitCredentials{}, time.Time{}, err
		}
	}
	var token struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	err = a.call(ctx, client, http.MethodPost, a.api.JoinPath("app/installations", installation, "access_tokens"),
		assertion, &token)
	if err == nil && token.Token == "" {
		err = authFault("host '%s' returned no token of the GitHub App", a.api.Host)
	}
	// GitHub accepts any user name with the token, and documents this one.
	return GitCredentials{Username: "x-access-token", Password: token.Token}, token.ExpiresAt, err
}

// findInstallation returns the ID of the owner's installation. The owner is an organization or a user.
func (a *GitHubApp) findInstallation(ctx context.Context, client *http.Client, assertion string) (string, error) {
	var found struct {
		ID int64 `json:"id"`
	}
	err := a.call(ctx, client, http.MethodGet, a.api.JoinPath("orgs", a.owner, "installation"), assertion, &found)
	if errors.Is(err, errNotFound) {
		err = a.call(ctx, client, http.MethodGet, a.api.JoinPath("users", a.owner, "installation"), assertion, &found)
	}
	if err == nil && found.ID == 0 {
		err = authFault("host '%s' returned no installation of the GitHub App for '%s'", a.api.Host, a.owner)
	}
	return strconv.FormatInt(found.ID, 10), err
}

// assertion returns the JSON web token (RFC 7519, signed with RS256) that authenticates the app.
func (a *GitHubApp) assertion(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": a.id, "iat": now.Add(-clockSkew).Unix(),
		"exp": now.Add(assertionTTL).Unix()})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", authFault("cannot sign the JSON web token of the GitHub App").Because(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

var errNotFound = errors.New("not found")

// call sends a request to the API, and decodes the JSON of its answer.
func (a *GitHubApp) call(ctx context.Context, client *http.Client, method string, u *url.URL, assertion string,
	answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), http.NoBody)
	if err != nil {
		return authFault("the API URL of host '%s' is invalid", a.api.Host)
	}
	req.Header.Set("Authorization", "Bearer "+assertion)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	resp, err := client.Do(req)
	if err != nil {
		return authFault("cannot get a token of the GitHub App from host '%s'", a.api.Host).
			Because(fault.WithoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return authFault("cannot read the answer of host '%s'", a.api.Host).Because(err)
	case resp.StatusCode == http.StatusNotFound:
		return authFault("host '%s' has no such installation of the GitHub App", a.api.Host).Because(errNotFound).
			WithHint("Install the app for the owner of the repository, and check githubAppInstallationID or " +
				"githubAppInstallationOwner")
	case resp.StatusCode == http.StatusUnauthorized:
		return authFault("host '%s' rejected the credentials of the GitHub App", a.api.Host).
			WithHint("Check githubAppID and githubAppPrivateKey, and the clock of the controller")
	case resp.StatusCode/100 != 2:
		f := authFault("host '%s' refused to issue a token of the GitHub App (HTTP %d)", a.api.Host, resp.StatusCode)
		if resp.StatusCode == http.StatusForbidden {
			return f.WithHint("Check that the installation is not suspended")
		}
		return f
	}
	// the cause is omitted, since it may quote the token
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(answer); err != nil {
		return authFault("host '%s' did not answer with the JSON of the GitHub API", a.api.Host).
			WithHint("Set githubAppBaseURL to the address of the API, such as https://HOST/api/v3")
	}
	return nil
}
