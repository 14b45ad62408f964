package hook

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/sluice-gitops/sluice/internal/expression"
)

// google issues the tokens of Pub/Sub (https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions).
const google = "https://accounts.google.com"

const (
	maxIssuers = 1000 // whose keys are kept
	fetches    = 1    // of an issuer's documents each second, so that forged tokens make no flood
	burst      = 5

	maxDocument = 1 << 20          // bytes
	patience    = 10 * time.Second // for one of an issuer's documents
)

// Checker checks requests. It keeps the keys of token issuers, and is safe for concurrent use.
type Checker struct {
	Transport http.RoundTripper // to issuers
	Google    string            // the issuer of Pub/Sub's tokens; Google's when empty

	mu      sync.Mutex
	issuers map[string]*issuer
}

// Provider is an issuer of tokens, and what must be true of them.
type Provider struct {
	Issuer, Audience string
	Variables        []Variable
	Validations      []Validation
}

// Variable is evaluated over claims and the vars before it.
type Variable struct {
	Name  string
	Value *expression.Expression
}

// Validation must hold over claims and vars.
type Validation struct {
	Holds   *expression.Expression
	Message string
}

type issuer struct {
	limit *rate.Limiter

	mu    sync.Mutex
	found *oidc.Provider
}

var errBusy = errors.New("the issuer was asked too often")

// limited bounds how often an issuer is asked.
type limited struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.limit.Allow() {
		return nil, errBusy
	}
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxDocument)
	}
	return resp, err
}

func (c *Checker) issuer(url string) *issuer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.issuers[url]; i != nil {
		return i
	}
	if c.issuers == nil || len(c.issuers) >= maxIssuers {
		c.issuers = map[string]*issuer{}
	}
	i := &issuer{limit: rate.NewLimiter(fetches, burst)}
	c.issuers[url] = i
	return i
}

// provider discovers an issuer once, and keeps what was found.
func (c *Checker) provider(ctx context.Context, url string) (*oidc.Provider, error) {
	i := c.issuer(url)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.found != nil {
		return i.found, nil
	}
	client := &http.Client{Timeout: patience, Transport: limited{c.Transport, i.limit}}
	// Keys are fetched for as long as the process runs, not only while this request is handled.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), client), url)
	if err != nil {
		return nil, &Refusal{http.StatusServiceUnavailable, "the keys of the token's issuer cannot be read now"}
	}
	i.found = found
	return found, nil
}

// claims returns those of a bearer token that the issuer signed for the audience, and that has not expired.
func (c *Checker) claims(ctx context.Context, url, audience string, raw string) (map[string]any, error) {
	p, err := c.provider(ctx, url)
	if err != nil {
		return nil, err
	}
	t, err := p.Verifier(&oidc.Config{ClientID: audience}).Verify(ctx, raw)
	if err != nil {
		if errors.Is(err, errBusy) {
			return nil, &Refusal{http.StatusServiceUnavailable, "the keys of the token's issuer cannot be read now"}
		}
		return nil, unauthorized("the token is not one of the issuer for this audience, or has expired")
	}
	claims := map[string]any{}
	if err := t.Claims(&claims); err != nil {
		return nil, unauthorized("the token's claims cannot be read")
	}
	return claims, nil
}

func bearer(h http.Header) (string, error) {
	scheme, raw, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || raw == "" {
		return "", unauthorized("the Authorization header has no bearer token")
	}
	return raw, nil
}

// vouched accepts what one of the providers vouches for.
func vouched(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error) {
	raw, err := bearer(r.Header)
	if err != nil {
		return Delivery{}, err
	}
	err = unauthorized("the token is of none of spec.oidcProviders")
	for _, p := range t.Providers {
		if !issuedBy(raw, p.Issuer) {
			continue
		}
		claims, failed := c.claims(ctx, p.Issuer, p.Audience, raw)
		if failed == nil {
			failed = p.validate(ctx, claims)
		}
		if failed == nil {
			return Delivery{Claims: claims}, nil
		}
		err = failed
	}
	return Delivery{}, err
}

// issuedBy tells whether a token, which is not checked yet, says that it is of an issuer: no other is asked
// for its keys.
func issuedBy(raw, issuer string) bool {
	_, rest, _ := strings.Cut(raw, ".")
	payload, _, _ := strings.Cut(rest, ".")
	b, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return false
	}
	var says struct{ Iss string }
	return has(b, &says, "a token", func() bool { return says.Iss == issuer }) == nil
}

func (p Provider) validate(ctx context.Context, claims map[string]any) error {
	vars := map[string]any{}
	known := expression.Map{"claims": claims, "vars": vars}
	for _, v := range p.Variables {
		value, err := v.Value.Value(ctx, known)
		if err != nil {
			return unauthorized("the variable %q of the provider has no value for this token", v.Name)
		}
		vars[v.Name] = value
	}
	for _, v := range p.Validations {
		if holds, err := v.Holds.Holds(ctx, known); err != nil || !holds {
			return unauthorized("the token is not accepted: %s", v.Message)
		}
	}
	return nil
}

// pubSub accepts what Pub/Sub pushes for Google's registries, as the service account of the subscription.
func pubSub(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error) {
	raw, err := bearer(r.Header)
	if err != nil {
		return Delivery{}, err
	}
	if t.Email == "" || t.Audience == "" {
		return Delivery{}, unauthorized("the receiver has no email and audience of the subscription")
	}
	claims, err := c.claims(ctx, cmp.Or(c.Google, google), t.Audience, raw)
	if err != nil {
		return Delivery{}, err
	}
	if claims["email"] != t.Email || claims["email_verified"] != true {
		return Delivery{}, unauthorized("the token is not that of the subscription's service account")
	}
	var push struct {
		Message struct{ Data []byte }
	}
	if err := has(r.Body, &push, "a Pub/Sub push", func() bool { return len(push.Message.Data) > 0 }); err != nil {
		return Delivery{}, err
	}
	var event struct{ Action, Digest, Tag string }
	return Delivery{}, has(push.Message.Data, &event, "an event of Google's registry",
		func() bool { return event.Action != "" })
}
