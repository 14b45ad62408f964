// Package oidcprovider is a login provider that speaks OpenID Connect. Only tests may import it.
package oidcprovider

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Credentials of the one client, and the password of all users.
const (
	ClientID     = "sluice"
	ClientSecret = "client-secret"
	Password     = "correct horse"
)

// Provider is a running login provider.
type Provider struct {
	URL string

	mu     sync.Mutex
	claims map[string]map[string]any // by user
	broken bool
}

// New starts a provider for one client with a redirect URL. It ends with the test.
func New(tb testing.TB, redirect string) *Provider {
	tb.Helper()
	p := &Provider{claims: map[string]map[string]any{}}
	server := httptest.NewUnstartedServer(nil)
	p.URL = "http://" + server.Listener.Addr().String()
	clients := map[string]*storage.Client{ClientID: storage.WebClient(ClientID, ClientSecret, redirect)}
	users := &store{Storage: storage.NewStorageWithClients(p, clients), provider: p}
	next := exampleop.SetupServer(p.URL, users, slog.New(slog.DiscardHandler), false)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		broken := p.broken
		p.mu.Unlock()
		if broken {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
	server.Start()
	tb.Cleanup(server.Close)
	return p
}

// SetUser adds a user, whose ID tokens have these claims besides the usual ones.
func (p *Provider) SetUser(name string, claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims[name] = claims
}

// Break makes all requests fail, or works again.
func (p *Provider) Break(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = broken
}

// GetUserByID implements [storage.UserStore].
func (p *Provider) GetUserByID(name string) *storage.User {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claims[name] == nil {
		return nil
	}
	return &storage.User{ID: name, Username: name, Password: Password}
}

// GetUserByUsername implements [storage.UserStore].
func (p *Provider) GetUserByUsername(name string) *storage.User { return p.GetUserByID(name) }

// ExampleClientID implements [storage.UserStore].
func (p *Provider) ExampleClientID() string { return "unused" }

// store adds the claims of users to ID tokens.
type store struct {
	*storage.Storage
	provider *Provider
}

// SetUserinfoFromRequest implements [op.CanSetUserinfoFromRequest].
func (s *store) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, token op.IDTokenRequest,
	_ []string) error {
	s.provider.mu.Lock()
	defer s.provider.mu.Unlock()
	info.Subject = token.GetSubject()
	for name, value := range s.provider.claims[token.GetSubject()] {
		info.AppendClaims(name, value)
	}
	return nil
}
