package review

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/githost"
)

// TestGitHubApp logs in as a GitHub App: for the API and to fetch.
func TestGitHubApp(t *testing.T) {
	t.Parallel()
	listed := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v3/app/installations/7/access_tokens":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"token":"ghs_1","expires_at":"%s"}`, time.Now().Add(time.Hour).Format(time.RFC3339))
		case r.URL.Path == "/api/v3/repos/org/fleet/pulls" && r.Header.Get("Authorization") == "Bearer ghs_1":
			listed = true
			fmt.Fprint(w, "[]")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Repository{Name: "fleet", URL: server.URL + "/org/fleet", Type: githost.GitHub,
		GitHubApp: &GitHubApp{ID: 5, InstallationID: 7, PrivateKeyFile: "key.pem"}}
	c := &Config{Repositories: []*Repository{r}}
	if err := c.complete(dir, risk.None); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Config: c, Dir: filepath.Join(dir, "mirrors"), Log: logr.Discard(),
		Transport: http.DefaultTransport})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.repositories["fleet"].host.Requests(t.Context()) {
		t.Fatal(err)
	}
	login, err := s.repositories["fleet"].mirror.Login(t.Context())
	if basic, ok := login.(*githttp.BasicAuth); err != nil || !ok || basic.Password != "ghs_1" || !listed {
		t.Errorf("%v %v, listed: %t", login, err, listed)
	}
	r.Type = githost.Gitea
	if err := c.complete(dir, risk.None); err == nil {
		t.Error("an app of another host is accepted")
	}
}
