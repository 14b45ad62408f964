package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// google is the issuer of Pub/Sub tokens (https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions).
const google = "https://accounts.google.com"

const (
	maxIssuers = 1000 // in the cache
	fetchRate  = 1    // requests to an issuer per second, since invalid tokens can trigger them
	fetchBurst = 5

	maxDocument    = 256 << 10        // bytes of an issuer document
	maxKeys        = 100              // of an issuer
	requestTimeout = 10 * time.Second // for an issuer document
)

// Checker verifies requests. It caches the keys of token issuers and is safe for concurrent use.
type Checker struct {
	Transport http.RoundTripper // to issuers
	Google    string            // issuer of Pub/Sub tokens; for tests

	mu          sync.Mutex
	issuers     map[string]*issuer
	discoveries guard.Flight[*oidc.Provider] // by issuer
}

// Provider is a token issuer with the conditions for its tokens.
type Provider struct {
	Issuer, Audience string
	Variables        []Variable
	Validations      []Validation
}

// Variable is an expression over claims and the preceding vars.
type Variable struct {
	Name  string
	Value *expression.Expression
}

// Validation is an expression over claims and vars that must be true.
type Validation struct {
	Holds   *expression.Expression
	Message string
}

type issuer struct {
	limit    *rate.Limiter
	provider atomic.Pointer[oidc.Provider]
}

var errRateLimited = errors.New("too many requests to the issuer")

// limited is a transport that limits the requests to an issuer, the size of responses, and the keys in them.
type limited struct {
	next http.RoundTripper
	rate *rate.Limiter
}

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.rate.Allow() {
		return nil, errRateLimited
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	document, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxDocument))
	if err == nil {
		err = guard.Do("reading the keys of a token issuer", func() error { return checkKeys(document) })
	}
	resp.Body = io.NopCloser(bytes.NewReader(document))
	return resp, err
}

func init() { jose.MaxRSAModulusBits = keysize.MaxBits } // what is larger is refused when it is read

// checkKeys returns an error if a document has so many keys that verifying a token with them takes long.
func checkKeys(document []byte) error {
	var set jose.JSONWebKeySet
	if json.Unmarshal(document, &set) != nil {
		return nil // no set of keys, or one that the reader refuses
	}
	if len(set.Keys) > maxKeys {
		return fmt.Errorf("the issuer has %d keys; the maximum is %d", len(set.Keys), maxKeys)
	}
	return nil
}

// issuer returns the cache entry of an issuer.
func (c *Checker) issuer(url string) *issuer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.issuers[url]; i != nil {
		return i
	}
	if c.issuers == nil || len(c.issuers) >= maxIssuers {
		c.issuers = map[string]*issuer{}
	}
	i := &issuer{limit: rate.NewLimiter(fetchRate, fetchBurst)}
	c.issuers[url] = i
	return i
}

// provider discovers an issuer and caches the result. Requests that need the same issuer share one discovery.
func (c *Checker) provider(ctx context.Context, url string) (*oidc.Provider, error) {
	i := c.issuer(url)
	if p := i.provider.Load(); p != nil {
		return p, nil
	}
	discovered, err := c.discoveries.DoContext(ctx, "discovering a token issuer", url, func() (*oidc.Provider, error) {
		client := &http.Client{Timeout: requestTimeout, Transport: limited{c.Transport, i.limit}}
		// The provider fetches keys later as well, so its context must not end with this request.
		return oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), client), url)
	})
	if err != nil {
		return nil, &Refusal{http.StatusServiceUnavailable, "the keys of the token issuer are not available"}
	}
	i.provider.Store(discovered)
	return discovered, nil
}

// claims verifies signature, audience and expiry of a token and returns its claims.
func (c *Checker) claims(ctx context.Context, url, audience string, raw string) (map[string]any, error) {
	p, err := c.provider(ctx, url)
	if err != nil {
		return nil, err
	}
	t, err := p.Verifier(&oidc.Config{ClientID: audience}).Verify(ctx, raw)
	if err != nil {
		if errors.Is(err, errRateLimited) {
			return nil, &Refusal{http.StatusServiceUnavailable, "the keys of the token issuer are not available"}
		}
		return nil, unauthorized("the token is not valid for this issuer and audience, or has expired")
	}
	claims := map[string]any{}
	if err := t.Claims(&claims); err != nil {
		return nil, unauthorized("cannot read the claims of the token")
	}
	return claims, nil
}

func bearer(h http.Header) (string, error) {
	raw := listen.Bearer(h)
	if raw == "" {
		return "", unauthorized("the Authorization header has no bearer token")
	}
	return raw, nil
}

// oidcToken accepts requests with a token that one of the providers accepts.
func oidcToken(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error) {
	raw, err := bearer(r.Header)
	if err != nil {
		return Delivery{}, err
	}
	err = unauthorized("no provider in spec.oidcProviders issued the token")
	for _, p := range t.Providers {
		if !issuedBy(raw, p.Issuer) {
			continue
		}
		claims, rejected := c.claims(ctx, p.Issuer, p.Audience, raw)
		if rejected == nil {
			rejected = p.validate(ctx, claims)
		}
		if rejected == nil {
			return Delivery{Claims: claims}, nil
		}
		err = rejected
	}
	return Delivery{}, err
}

// issuedBy reports whether an unverified token names an issuer, so that keys are requested from that issuer only.
func issuedBy(raw, issuer string) bool {
	_, rest, _ := strings.Cut(raw, ".")
	payload, _, _ := strings.Cut(rest, ".")
	b, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return false
	}
	var payloadClaims struct{ Iss string }
	return decode(b, &payloadClaims, "a token", func() bool { return payloadClaims.Iss == issuer }) == nil
}

// validate evaluates the variables and validations of the provider for a token.
func (p Provider) validate(ctx context.Context, claims map[string]any) error {
	vars := map[string]any{}
	variables := expression.Map{"claims": claims, "vars": vars}
	for _, v := range p.Variables {
		value, err := v.Value.Value(ctx, variables)
		if err != nil {
			return unauthorized("cannot evaluate the variable %q of the provider for this token", v.Name)
		}
		vars[v.Name] = value
	}
	for _, v := range p.Validations {
		if holds, err := v.Holds.Holds(ctx, variables); err != nil || !holds {
			return unauthorized("the token is rejected: %s", v.Message)
		}
	}
	return nil
}

// pubSub accepts Pub/Sub pushes for Google registries that are authenticated as the service account of the
// subscription.
func pubSub(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error) {
	raw, err := bearer(r.Header)
	if err != nil {
		return Delivery{}, err
	}
	if t.Email == "" || t.Audience == "" {
		return Delivery{}, unauthorized("the receiver needs the email and audience of the subscription")
	}
	claims, err := c.claims(ctx, cmp.Or(c.Google, google), t.Audience, raw)
	if err != nil {
		return Delivery{}, err
	}
	if claims["email"] != t.Email || claims["email_verified"] != true {
		return Delivery{}, unauthorized("the token does not belong to the service account of the subscription")
	}
	var push struct {
		Message struct{ Data []byte }
	}
	if err := decode(r.Body, &push, "a Pub/Sub push", func() bool { return len(push.Message.Data) > 0 }); err != nil {
		return Delivery{}, err
	}
	var event struct{ Action, Digest, Tag string }
	return Delivery{}, decode(push.Message.Data, &event, "a Google registry event",
		func() bool { return event.Action != "" })
}
