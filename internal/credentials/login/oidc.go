package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// OIDC describes the login provider. User names and groups follow the settings of kube-apiserver of the same names.
type OIDC struct {
	Issuer           string
	ClientID         string
	ClientSecretFile string // read at each login; empty for a public client
	CAFile           string // PEM; empty for the authorities of the system
	Scopes           []string
	UsernameClaim    string
	UsernamePrefix   string
	GroupsClaim      string
	GroupsPrefix     string
}

const (
	providerTimeout = 10 * time.Second
	providerRetry   = 5 * time.Second // between attempts to read the provider's configuration
	maxDocument     = 1 << 20         // bytes of an answer of the provider
	maxParameter    = 4 << 10         // bytes of a parameter of the callback
)

// provider is the login provider. Its configuration is read when the first person logs in, so that a provider that is
// away stops neither the controllers nor those who are logged in.
type provider struct {
	*OIDC
	redirect string
	client   *http.Client
	now      func() time.Time

	mu       sync.Mutex
	found    *oidc.Provider
	failure  error
	failedAt time.Time
}

func newProvider(o *OIDC, external *url.URL, now func() time.Time) (*provider, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no certificate in PEM", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	client := &http.Client{Timeout: providerTimeout, Transport: egress.Bounded{Next: transport, Bytes: maxDocument}}
	return &provider{OIDC: o, redirect: external.String() + CallbackPath, now: now, client: client}, nil
}

// discover returns the provider with its configuration, which is read once. After a failure it is tried again, but not
// by every request.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	if p.failure != nil && p.now().Sub(p.failedAt) < providerRetry {
		return nil, p.failure
	}
	// The provider fetches keys later as well, so its context must not end with this request.
	p.found, p.failure = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	p.failedAt = p.now()
	return p.found, p.failure
}

// config returns the settings for requests to the provider.
func (p *provider) config(found *oidc.Provider) (*oauth2.Config, error) {
	c := &oauth2.Config{ClientID: p.ClientID, Endpoint: found.Endpoint(), RedirectURL: p.redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...)}
	if p.ClientSecretFile != "" {
		secret, err := os.ReadFile(p.ClientSecretFile)
		if err != nil {
			return nil, err
		}
		c.ClientSecret = strings.TrimSpace(string(secret))
	}
	return c, nil
}

// attempt is what the browser keeps while a person is at the login provider.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"` // of PKCE
	Next     string `json:"r"` // address to show after the login
	Ends     int64  `json:"e"` // Unix time
}

// startOIDC leads to the login provider. Parameter: next, the address to show after the login.
func (s *Sessions) startOIDC(w http.ResponseWriter, r *http.Request) {
	found, err := s.provider.discover(r.Context())
	if err != nil {
		s.away(w, err)
		return
	}
	config, err := s.provider.config(found)
	if err != nil {
		s.away(w, err)
		return
	}
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(),
		Next: ownPath(r.URL.Query().Get("next")), Ends: s.Now().Add(loginTTL).Unix()}
	if err := s.set(w, loginCookie, a, loginTTL); err != nil {
		s.refuse(w, http.StatusBadRequest, "The login cannot be started.", err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)),
		http.StatusFound)
}

func (s *Sessions) away(w http.ResponseWriter, err error) {
	s.refuse(w, http.StatusServiceUnavailable, "The login provider cannot be reached. Try again in a few seconds. If "+
		"this stays, an administrator finds the reason in the log of Sluice.", err)
}

// finishOIDC starts a session for a person who comes back from the login provider.
func (s *Sessions) finishOIDC(w http.ResponseWriter, r *http.Request) {
	s.clear(w, loginCookie)
	w.Header().Set("Cache-Control", "no-store")
	a, err := s.attempt(r)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "This login was not started in this browser, or it took too long. Start "+
			"again.", err)
		return
	}
	q := r.URL.Query()
	if reason := q.Get("error"); reason != "" {
		s.refuse(w, http.StatusForbidden, "The login provider refused the login: "+
			excerpt.Bytes(reason+" "+q.Get("error_description"), 300), nil)
		return
	}
	who, raw, err := s.exchange(r.Context(), a, q.Get("code"))
	var refused *Refusal
	switch {
	case errors.As(err, &refused):
		s.refuse(w, http.StatusForbidden, "The login is refused: "+refused.Error()+".", err)
		return
	case err != nil:
		s.refuse(w, http.StatusBadGateway, "The login provider did not confirm the login. Start again. If this stays, "+
			"an administrator finds the reason in the log of Sluice.", err)
		return
	}
	if err := s.Begin(w, Session{User: who.User, Groups: who.Groups}, who.User); err != nil {
		s.refuse(w, http.StatusForbidden, fmt.Sprintf("The login is refused: %d groups are too many for a session. "+
			"Let the login provider send fewer.", len(who.Groups)), err)
		return
	}
	s.keepToken(w, who, raw)
	http.Redirect(w, r, ownPath(a.Next), http.StatusFound)
}

// attempt returns the attempt to log in that a request from the login provider belongs to.
func (s *Sessions) attempt(r *http.Request) (*attempt, error) {
	c, err := r.Cookie(s.cookieName(loginCookie))
	if err != nil {
		return nil, err
	}
	a := &attempt{}
	if err := s.seal.open(loginCookie, c.Value, a); err != nil {
		return nil, err
	}
	state := r.URL.Query().Get("state")
	switch {
	case a.State == "" || subtle.ConstantTimeCompare([]byte(state), []byte(a.State)) != 1:
		return nil, errors.New("the state is another one")
	case !s.Now().Before(time.Unix(a.Ends, 0)):
		return nil, errors.New("the attempt has expired")
	case len(r.URL.Query().Get("code")) > maxParameter:
		return nil, errors.New("the code is too long")
	}
	return a, nil
}

// Refusal is an error in what the provider says about a person. It may be shown.
type Refusal struct{ error }

// exchange gets the ID token for a code, and returns who it is for.
func (s *Sessions) exchange(ctx context.Context, a *attempt, code string) (who *Identity, raw string, err error) {
	found, err := s.provider.discover(ctx)
	if err != nil {
		return nil, "", err
	}
	config, err := s.provider.config(found)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, s.provider.client), providerTimeout)
	defer cancel()
	tokens, err := config.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return nil, "", err
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, "", errors.New("the answer contains no ID token")
	}
	who, err = s.provider.verify(ctx, raw, a.Nonce)
	return who, raw, err
}

// maxIDToken bounds an ID token, in bytes.
const maxIDToken = 7 << 10

// Verify returns who an ID token is for. The error is a [Refusal] if the token is valid, and its claims are not.
func (s *Sessions) Verify(ctx context.Context, raw string) (*Identity, error) {
	if s.provider == nil || len(raw) > maxIDToken {
		return nil, errors.New("this is not an ID token of the login provider")
	}
	return s.provider.verify(ctx, raw, "")
}

// verify returns who an ID token is for. A nonce must be that of the token.
func (p *provider) verify(ctx context.Context, raw, nonce string) (*Identity, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.ClientID, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1 {
		return nil, errors.New("the ID token has another nonce")
	}
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return nil, err
	}
	who, err := p.identity(claims)
	if err != nil {
		return nil, &Refusal{err}
	}
	who.ends = token.Expiry
	return who, nil
}
