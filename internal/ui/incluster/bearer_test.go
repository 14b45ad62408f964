package incluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
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
		o.OIDC = &OIDC{Issuer: provider.Issuer(), ClientID: provider.ClientID, ClientSecretFile: secret,
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
