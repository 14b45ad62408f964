package hook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/sluice-gitops/sluice/internal/build/expression"
)

// newIssuer starts an issuer; mint returns tokens that it signed.
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
	serve := func(path string, v any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		})
	}
	serve("/.well-known/openid-configuration", map[string]any{"issuer": server.URL, "jwks_uri": server.URL + "/keys"})
	serve("/keys", map[string]any{"keys": []any{map[string]any{
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

func compile(t *testing.T, source string) *expression.Expression {
	t.Helper()
	e, err := expression.CompileValue(source, "claims", "vars")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestOIDCTokens(t *testing.T) {
	issuer, mint := newIssuer(t)
	_, mintOther := newIssuer(t)
	trust := Trust{Type: "generic-oidc", Providers: []Provider{{
		Issuer: issuer, Audience: "sluice",
		Variables: []Variable{{Name: "repository", Value: compile(t, "claims.repository")},
			{Name: "owner", Value: compile(t, "vars.repository.split('/')[0]")}},
		Validations: []Validation{{Holds: compile(t, "vars.owner == 'shop'"), Message: "only shop is allowed"}},
	}}}
	c := &Checker{Transport: http.DefaultTransport}
	for name, tc := range map[string]struct {
		token  string
		status int
	}{
		"valid":          {token: mint(jwt.MapClaims{"repository": "shop/app"})},
		"other owner":    {token: mint(jwt.MapClaims{"repository": "x/app"}), status: 401},
		"missing claim":  {token: mint(nil), status: 401},
		"other audience": {token: mint(jwt.MapClaims{"repository": "shop/app", "aud": "x"}), status: 401},
		"expired":        {token: mint(jwt.MapClaims{"repository": "shop/app", "exp": 1}), status: 401},
		"other key":      {token: mintOther(jwt.MapClaims{"repository": "shop/app", "iss": issuer}), status: 401},
		"other issuer":   {token: mintOther(jwt.MapClaims{"repository": "shop/app"}), status: 401},
	} {
		d, err := c.Verify(t.Context(), trust, Request{Header: headers("Authorization", "Bearer "+tc.token)})
		if got := status(t, err); got != tc.status || got == 0 && d.Claims["repository"] != "shop/app" {
			t.Errorf("%s: status %d, want %d (%v)", name, got, tc.status, err)
		}
	}
}

func TestPubSub(t *testing.T) {
	issuer, mint := newIssuer(t)
	c := &Checker{Transport: http.DefaultTransport, Google: issuer}
	trust := Trust{Type: "gcr", Token: secret, Email: "push@shop.iam.gserviceaccount.com", Audience: "sluice"}
	event := base64.StdEncoding.EncodeToString(
		[]byte(`{"action":"INSERT","digest":"gcr.io/shop/app@sha256:6ec","tag":"gcr.io/shop/app:1"}`))
	verified := jwt.MapClaims{"email": trust.Email, "email_verified": true}
	pushed := `{"message":{"data":"` + event + `","messageId":"1"},"subscription":"projects/shop/subscriptions/a"}`
	for name, tc := range map[string]struct {
		claims jwt.MapClaims
		body   string
		status int
	}{
		"valid": {claims: verified, body: pushed},
		"other account": {claims: jwt.MapClaims{"email": "x@y", "email_verified": true}, body: pushed,
			status: 401},
		"unverified email":     {claims: jwt.MapClaims{"email": trust.Email}, body: pushed, status: 401},
		"not a registry event": {claims: verified, body: `{"message":{"data":"e30="}}`, status: 400},
		"empty push":           {claims: verified, body: `{}`, status: 400},
	} {
		_, err := c.Verify(t.Context(), trust,
			Request{headers("Authorization", "Bearer "+mint(tc.claims)), []byte(tc.body)})
		if got := status(t, err); got != tc.status {
			t.Errorf("%s: status %d, want %d (%v)", name, got, tc.status, err)
		}
	}
}

func TestUnavailableIssuer(t *testing.T) {
	issuer, mint := newIssuer(t)
	c := &Checker{Transport: http.DefaultTransport}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	trust := Trust{Type: "generic-oidc", Providers: []Provider{{Issuer: gone.URL, Audience: "sluice"}}}
	for range 20 { // more than the rate limit
		_, err := c.Verify(t.Context(), trust,
			Request{Header: headers("Authorization", "Bearer "+mint(jwt.MapClaims{"iss": gone.URL}))})
		if got := status(t, err); got != http.StatusServiceUnavailable {
			t.Fatalf("status %d (%v), issuer %s", got, err, issuer)
		}
	}
}

// TestKeysThatTakeLongAreRefused has keys with which a token is verified in seconds, and the errors for them.
func TestKeysThatTakeLongAreRefused(t *testing.T) {
	text := base64.RawURLEncoding.EncodeToString
	key := func(bits int) map[string]any {
		modulus := bytes.Repeat([]byte{0xff}, bits/8)
		return map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": text(modulus), "e": "AQAB"}
	}
	token := text([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + text([]byte("{}")) + "." + text([]byte("x"))
	for name, test := range map[string]struct {
		keys []map[string]any
		says string
	}{
		"a usual key":     {[]map[string]any{key(4096)}, "failed to verify id token signature"},
		"the largest key": {[]map[string]any{key(16384)}, "failed to verify id token signature"},
		"a larger key":    {[]map[string]any{key(4096), key(16392)}, "modulus too large"},
		"a huge key":      {[]map[string]any{key(512 << 10)}, "modulus too large"},
		"many keys":       {slices.Repeat([]map[string]any{key(2048)}, 101), "has 101 keys; the maximum is 100"},
	} {
		mux := http.NewServeMux()
		server := httptest.NewServer(mux)
		defer server.Close()
		mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(map[string]any{"keys": test.keys}); err != nil {
				t.Error(err)
			}
		})
		client := &http.Client{Transport: limited{http.DefaultTransport, rate.NewLimiter(1, 1)}}
		keys := oidc.NewRemoteKeySet(oidc.ClientContext(t.Context(), client), server.URL+"/keys")
		if _, err := keys.VerifySignature(t.Context(), token); !strings.Contains(fmt.Sprint(err), test.says) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.says)
		}
	}
}

// TestRequestsOfAnIssuerThatHangsWaitTogether checks that requests share a discovery, and end with their contexts.
func TestRequestsOfAnIssuerThatHangsWaitTogether(t *testing.T) {
	const requests = 8
	asked, hang := make(chan struct{}, requests), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-hang
	}))
	defer server.Close()
	defer close(hang)
	_, mint := newIssuer(t)
	raw := mint(jwt.MapClaims{"iss": server.URL})
	trust := Trust{Type: "generic-oidc", Providers: []Provider{{Issuer: server.URL, Audience: "sluice"}}}
	c := &Checker{Transport: http.DefaultTransport}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, requests)
	for range requests {
		go func() {
			_, err := c.Verify(ctx, trust, Request{Header: headers("Authorization", "Bearer "+raw)})
			ended <- err
		}()
	}
	<-asked
	cancel()
	for range requests {
		if got := status(t, <-ended); got != http.StatusServiceUnavailable {
			t.Errorf("status %d", got)
		}
	}
	if len(asked) > 0 {
		t.Errorf("%d more requests to the issuer", len(asked))
	}
}
