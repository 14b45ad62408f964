package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
)

var appKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// appSecret returns the data of a Secret with some changes: pairs of key and value. An empty value removes the key.
func appSecret(changes ...string) map[string][]byte {
	data := map[string][]byte{"githubAppID": []byte("12"), "githubAppInstallationID": []byte("34"),
		"githubAppPrivateKey": pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(appKey()))}
	for i := 0; i < len(changes); i += 2 {
		data[changes[i]] = []byte(changes[i+1])
	}
	maps.DeleteFunc(data, func(_ string, v []byte) bool { return len(v) == 0 })
	return data
}

// checkAssertion verifies the JSON web token of a request as GitHub does.
func checkAssertion(t *testing.T, r *http.Request, at time.Time) {
	t.Helper()
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(text, ".")
	if !ok || len(parts) != 3 {
		t.Fatalf("Authorization is %q", r.Header.Get("Authorization"))
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&appKey().PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		t.Errorf("the signature: %v", err)
	}
	var claims struct {
		Issuer string `json:"iss"`
		From   int64  `json:"iat"`
		Until  int64  `json:"exp"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(raw, &claims)
	}
	if err != nil || claims.Issuer != "12" || claims.From > at.Unix()-30 || claims.Until <= at.Unix() ||
		claims.Until-claims.From > 600 {
		t.Errorf("the claims are %s, %v", raw, err)
	}
	expect(t, "Accept", r.Header.Get("Accept"), "application/vnd.github+json")
}

func TestGitHubAppTokens(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	api := func(w http.ResponseWriter, r *http.Request) {
		checkAssertion(t, r, clock.Now())
		switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v3") {
		case "GET /orgs/team/installation":
			answer(w, `{"id":34}`)
		case "GET /users/someone/installation":
			answer(w, `{"id":56}`)
		case "POST /app/installations/34/access_tokens", "POST /app/installations/56/access_tokens":
			w.WriteHeader(http.StatusCreated)
			answer(w, `{"token":"ghs_%s","expires_at":"%s"}`, strings.Split(r.URL.Path, "installations/")[1][:2],
				clock.Now().Add(time.Hour).Format(time.RFC3339))
		default:
			w.WriteHeader(http.StatusNotFound)
			answer(w, `{"message":"Not Found"}`)
		}
	}
	c := newClouds(t, map[string]http.HandlerFunc{"api.github.com": api, "github.example.com": api})
	apps := &GitHubApps{Clock: clock}
	checkToken := func(want string, changes ...string) {
		t.Helper()
		app, err := GitHubAppFrom(appSecret(changes...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := apps.Git(within(t), app, c)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "the login", got.Username+":"+got.Password, "x-access-token:"+want)
	}
	c.roundTrips("by installation", 1, func() { checkToken("ghs_34") })
	c.roundTrips("again", 0, func() { checkToken("ghs_34") })
	byOrg := []string{"githubAppInstallationID", "", "githubAppInstallationOwner", "team"}
	c.roundTrips("by organization", 2, func() { checkToken("ghs_34", byOrg...) })
	c.roundTrips("by user", 3, func() {
		checkToken("ghs_56", "githubAppInstallationID", "", "githubAppInstallationOwner",
			"someone")
	})
	c.roundTrips("of an Enterprise Server", 1,
		func() { checkToken("ghs_34", "githubAppBaseURL", "https://github.example.com/api/v3/") })
	pkcs8, err := x509.MarshalPKCS8PrivateKey(appKey())
	if err != nil {
		t.Fatal(err)
	}
	c.roundTrips("with the key in PKCS #8", 1,
		func() { checkToken("ghs_34", "githubAppPrivateKey", string(pemOf("PRIVATE KEY", pkcs8))) })
	clock.SetTime(clock.Now().Add(54 * time.Minute))
	c.roundTrips("before the renewal", 0, func() { checkToken("ghs_34") })
	clock.SetTime(clock.Now().Add(2 * time.Minute))
	c.roundTrips("before the expiry", 1, func() { checkToken("ghs_34") })

	refusesStranger(t, apps, c)
}

// refusesStranger makes sure that an owner without an installation fails.
func refusesStranger(t *testing.T, apps *GitHubApps, c *clouds) {
	t.Helper()
	app, err := GitHubAppFrom(appSecret("githubAppInstallationID", "", "githubAppInstallationOwner", "stranger"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = apps.Git(within(t), app, c)
	mustFail(t, err, "has no such installation of the GitHub App: not found. Install the app for the owner of "+
		"the repository, and check githubAppInstallationID or "+
		"githubAppInstallationOwner", "githubAppInstallationOwner")
}

func TestGitHubAppFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		want   string
	}{
		"wrong key": {status: 401, answer: `{"message":"s3cret"}`, want: "Check githubAppID and " +
			"githubAppPrivateKey, and the clock of the controller"},
		"suspended": {status: 403, answer: `{"message":"s3cret"}`, want: "(HTTP 403). Check that the " +
			"installation is not suspended"},
		"not JSON": {status: 201, answer: `<html>s3cret`,
			want: "Set githubAppBaseURL to the address of the API, such as https://HOST/api/v3"},
		"no token": {status: 201, answer: `{"s3cret":1}`, want: "returned no token"},
		"answer is too long": {status: 201, answer: `{"token":"` + strings.Repeat("s3cret", 1<<20),
			want: "githubAppBaseURL"},
	} {
		clouds := newClouds(t, map[string]http.HandlerFunc{"api.github.com": func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(c.status)
			answer(w, "%s", c.answer)
		}})
		app, err := GitHubAppFrom(appSecret())
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&GitHubApps{}).Git(within(t), app, clouds)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		mustFail(t, err, c.want)
	}
}

func TestInvalidGitHubAppSecrets(t *testing.T) {
	t.Parallel()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	for want, changes := range map[string][]string{
		"Set it to the App ID that GitHub shows on the page of the app": {"githubAppID", "s3cret"},
		"one of the keys githubAppInstallationID and githubAppInstallationOwner. " +
			"Set one of them": {"githubAppInstallationID", ""},
		"Set it to the number at the end of the URL of the installation's page": {"githubAppInstallationID",
			"34/../../x"},
		"organization or user in the key githubAppInstallationOwner. Use the name in the URL of its " +
			"repositories": {"githubAppInstallationID", "", "githubAppInstallationOwner", "a/b"},
		"Use the form https://HOST/api/v3": {"githubAppBaseURL", "github.example.com"},
		"no RSA key":                       {"githubAppPrivateKey", "s3cret"},
		"RSA key in PEM in the key githubAppPrivateKey. Generate a key on the app's page at GitHub, and use the " +
			"file unchanged": {"githubAppPrivateKey", string(pemOf("PRIVATE KEY", der))},
		"the RSA key has 16640 bits": {"githubAppPrivateKey", string(largekey.File(t))},
		"in PEM":                     {"githubAppPrivateKey", string(pemOf("PRIVATE KEY", []byte("s3cret")))},
	} {
		_, err := GitHubAppFrom(appSecret(changes...))
		mustFail(t, err, strings.TrimSuffix(strings.TrimSpace(want), "'"))
	}
}
