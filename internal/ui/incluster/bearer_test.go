package incluster

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
)

// TestBearerOfTheProvider has ID tokens as a program gets them from the login provider.
func TestBearerOfTheProvider(t *testing.T) {
	provider, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = provider.Shutdown() })
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(provider.ClientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(o *Options) {
		o.OIDC = &login.OIDC{Issuer: provider.Issuer(), ClientID: provider.ClientID, ClientSecretFile: secret,
			UsernameClaim: "email", GroupsClaim: "groups"}
	})
	sign := func(changes jwt.MapClaims) string {
		claims := jwt.MapClaims{"iss": provider.Issuer(), "aud": provider.ClientID, "sub": "1",
			"email": "anna@example.com", "groups": []string{"shop"}, "iat": time.Now().Unix(),
			"exp": time.Now().Add(time.Hour).Unix()}
		for k, v := range changes {
			claims[k] = v
		}
		token, err := provider.Keypair.SignJWT(claims)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	s.asOfHub(sign(nil))
	u, err := s.login.Bearer(t.Context(), sign(nil))
	if err != nil || u.Name != "anna@example.com" || !slices.Equal(u.Groups, []string{"shop"}) || u.Client == nil {
		t.Errorf("got %+v, %v", u, err)
	}
	for name, token := range map[string]string{
		"another client":  sign(jwt.MapClaims{"aud": "other"}),
		"another issuer":  sign(jwt.MapClaims{"iss": "https://evil.example"}),
		"expired":         sign(jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}),
		"a reserved name": sign(jwt.MapClaims{"email": "system:admin"}),
		"a group":         sign(jwt.MapClaims{"groups": []string{"system:masters"}}),
		"unverified":      sign(jwt.MapClaims{"email_verified": false}),
		"without a name":  sign(jwt.MapClaims{"email": ""}),
		"another key":     sign(nil) + "x",
		"no token":        "", "long": strings.Repeat("x", 1<<20),
	} {
		if u, err := s.login.Bearer(t.Context(), token); err == nil {
			t.Errorf("%s: logged in as %s", name, u.Name)
		}
	}
}

// asOfHub checks requests with a token that a hub took from a cookie. Only a login for a hub accepts them, and writes
// need a secret.
func (s *site) asOfHub(token string) {
	s.Helper()
	b := s.browser()
	with := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	if r := b.do(http.MethodGet, "/api/v1/me", "", with); r.status != http.StatusUnauthorized {
		s.Errorf("a UI of its own takes a token: %d %s", r.status, r.body)
	}
	s.login.ByHub = true
	defer func() { s.login.ByHub = false }()
	r := b.do(http.MethodGet, "/api/v1/me", "", with)
	var m me
	if err := json.Unmarshal([]byte(r.body), &m); err != nil || m.User != "anna@example.com" || m.CSRF == "" ||
		m.Logout || b.cookie(sessionCookie) != nil {
		s.Errorf("a user of the hub: %d %s", r.status, r.body)
	}
	const act = "/api/v1/objects/Kustomization/default/none/reconcile"
	if r := b.do(http.MethodPost, act, "{}", with); r.status != http.StatusForbidden ||
		!strings.Contains(r.body, "of another session") {
		s.Errorf("a write without the secret: %d %s", r.status, r.body)
	}
	b.csrf = m.CSRF
	if r := b.do(http.MethodPost, act, "{}", with); strings.Contains(r.body, "of another session") {
		s.Errorf("a write with the secret: %d %s", r.status, r.body)
	}
	if r := b.do(http.MethodGet, "/api/v1/me", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token+"x")
	}); r.status != http.StatusUnauthorized || !strings.Contains(r.body, "neither a valid ID token") {
		s.Errorf("a changed token: %d %s", r.status, r.body)
	}
}
