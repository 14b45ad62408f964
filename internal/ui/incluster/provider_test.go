package incluster

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
)

// TestLoginAtAnotherProvider logs in at mockoidc, which has no code in common with the provider of the other tests.
func TestLoginAtAnotherProvider(t *testing.T) {
	provider, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := provider.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(provider.ClientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(o *Options) {
		o.OIDC = &login.OIDC{Issuer: provider.Issuer(), ClientID: provider.ClientID, ClientSecretFile: secret,
			Scopes: []string{"profile", "email", "groups"}, UsernameClaim: "email", GroupsClaim: "groups"}
	})
	provider.QueueUser(&mockoidc.MockUser{Subject: "1", Email: "anna@example.com", EmailVerified: true,
		PreferredUsername: "anna", Groups: []string{"shop"}})
	b := s.browser()
	if r := b.oidc("", "/"); r.status != http.StatusOK || r.url.Path != "/" {
		t.Fatalf("the login got %d at %s: %s\n%s", r.status, r.url, r.body, s.logged())
	}
	if me := b.me(); me.User != "anna@example.com" {
		t.Errorf("logged in as %q", me.User)
	}
	provider.QueueError(&mockoidc.ServerError{Code: http.StatusForbidden, Error: "access_denied"})
	if r := s.browser().oidc("", "/"); r.status == http.StatusOK {
		t.Errorf("a login that the provider refuses got %d at %s", r.status, r.url)
	}
}
