package hook

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-gitops/sluice/internal/expression"
)

// newIssuer serves the documents of an issuer whose key signs what mint returns.
func newIssuer(t *testing.T) (url string, mint func(claims jwt.MapClaims) string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	answer := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		})
	}
	answer("/.well-known/openid-configuration", map[string]any{"issuer": server.URL, "jwks_uri": server.URL + "/keys"})
	answer("/keys", map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": text(key.N.Bytes()),
		"e": text(big.NewInt(int64(key.E)).Bytes()),
	}}})
	return server.URL, func(claims jwt.MapClaims) string {
		all := jwt.MapClaims{"iss": server.URL, "aud": "sluice", "sub": "a", "exp": time.Now().Add(time.Hour).Unix()}
		maps.Copy(all, claims)
		token := jwt.NewWithClaims(jwt.SigningMethodRS256, all)
		token.Header["kid"] = "1"
		signed, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
}

func compiled(t *testing.T, source string) *expression.Expression {
	t.Helper()
	e, err := expression.CompileValue(source, "claims", "vars")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTokens(t *testing.T) {
	issuer, mint := newIssuer(t)
	_, forge := newIssuer(t)
	trust := Trust{Type: "generic-oidc", Providers: []Provider{{
		Issuer: issuer, Audience: "sluice",
		Variables: []Variable{{"repository", compiled(t, "claims.repository")},
			{"owner", compiled(t, "vars.repository.split('/')[0]")}},
		Validations: []Validation{{compiled(t, "vars.owner == 'shop'"), "only shop may call"}},
	}}}
	c := &Checker{Transport: http.DefaultTransport}
	for name, one := range map[string]struct {
		token  string
		status int
	}{
		"in order":             {mint(jwt.MapClaims{"repository": "shop/app"}), 0},
		"of another owner":     {mint(jwt.MapClaims{"repository": "x/app"}), 401},
		"without the claim":    {mint(nil), 401},
		"for another audience": {mint(jwt.MapClaims{"repository": "shop/app", "aud": "x"}), 401},
		"expired":              {mint(jwt.MapClaims{"repository": "shop/app", "exp": 1}), 401},
		"forged":               {forge(jwt.MapClaims{"repository": "shop/app", "iss": issuer}), 401},
		"of another issuer":    {forge(jwt.MapClaims{"repository": "shop/app"}), 401},
	} {
		d, err := c.Verify(t.Context(), trust, Request{Header: headers("Authorization", "Bearer "+one.token)})
		if got := status(t, err); got != one.status || got == 0 && d.Claims["repository"] != "shop/app" {
			t.Errorf("%s: status %d, want %d (%v)", name, got, one.status, err)
		}
	}
}

func TestPubSub(t *testing.T) {
	issuer, mint := newIssuer(t)
	c := &Checker{Transport: http.DefaultTransport, Google: issuer}
	trust := Trust{Type: "gcr", Token: secret, Email: "push@shop.iam.gserviceaccount.com", Audience: "sluice"}
	event := base64.StdEncoding.EncodeToString(
		[]byte(`{"action":"INSERT","digest":"gcr.io/shop/app@sha256:6ec","tag":"gcr.io/shop/app:1"}`))
	pushed := `{"message":{"data":"` + event + `","messageId":"1"},"subscription":"projects/shop/subscriptions/a"}`
	for name, one := range map[string]struct {
		claims jwt.MapClaims
		body   string
		status int
	}{
		"in order":           {jwt.MapClaims{"email": trust.Email, "email_verified": true}, pushed, 0},
		"of another account": {jwt.MapClaims{"email": "x@y", "email_verified": true}, pushed, 401},
		"unverified":         {jwt.MapClaims{"email": trust.Email}, pushed, 401},
		"not of a registry": {jwt.MapClaims{"email": trust.Email, "email_verified": true},
			`{"message":{"data":"e30="}}`, 400},
		"nothing": {jwt.MapClaims{"email": trust.Email, "email_verified": true}, `{}`, 400},
	} {
		_, err := c.Verify(t.Context(), trust,
			Request{headers("Authorization", "Bearer "+mint(one.claims)), []byte(one.body)})
		if got := status(t, err); got != one.status {
			t.Errorf("%s: status %d, want %d (%v)", name, got, one.status, err)
		}
	}
}

func TestIssuerThatIsAway(t *testing.T) {
	issuer, mint := newIssuer(t)
	c := &Checker{Transport: http.DefaultTransport}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	trust := Trust{Type: "generic-oidc", Providers: []Provider{{Issuer: gone.URL, Audience: "sluice"}}}
	for range 20 { // more than the issuer is asked
		_, err := c.Verify(t.Context(), trust,
			Request{Header: headers("Authorization", "Bearer "+mint(jwt.MapClaims{"iss": gone.URL}))})
		if got := status(t, err); got != http.StatusServiceUnavailable {
			t.Fatalf("status %d (%v), as %s", got, err, issuer)
		}
	}
}
