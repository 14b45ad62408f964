package hub

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxToken       = 7 << 10 // bytes
	maxJWKS        = 256 << 10
	issuerTimeout  = 5 * time.Second
	issuerInterval = 10 * time.Second // between requests to an issuer, after a few
	notBeforeSlack = 5 * time.Minute  // as go-oidc has it
)

// signatures are the algorithms that API servers sign tokens with.
var signatures = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"}

// trust verifies the tokens of a cluster.
type trust struct {
	issuer, subject, audience string
	now                       func() time.Time

	verifier func(ctx context.Context) (*oidc.IDTokenVerifier, error)
}

// newTrust returns what the values of a Secret say.
func (g *Registry) newTrust(get func(key string) string) (*trust, error) {
	t := &trust{issuer: get(fleet.IssuerKey), subject: get(fleet.SubjectKey), audience: get(fleet.AudienceKey),
		now: g.Now}
	if t.subject == "" {
		t.subject = fleet.DefaultSubject
	}
	if t.audience == "" {
		t.audience = g.Audience
	}
	if t.issuer == "" {
		return nil, errors.New("it has no issuer. It is the field 'iss' of the tokens of the cluster")
	}
	config := &oidc.Config{ClientID: t.audience, Now: g.Now, SupportedSigningAlgs: signatures}
	if inline := get(fleet.KeysKey); inline != "" {
		keys, err := parseKeys(inline)
		if err != nil {
			return nil, err
		}
		verifier := oidc.NewVerifier(t.issuer, keys, config)
		t.verifier = func(context.Context) (*oidc.IDTokenVerifier, error) { return verifier, nil }
		return t, nil
	}
	address := get(jwksURLKey)
	for _, text := range []string{address, t.issuer} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			return nil, fmt.Errorf("'%s' is not a URL that starts with https://. Without such a URL, the key '%s' "+
				"must have the public keys of the issuer", excerpt.Line(text, 100), fleet.KeysKey)
		}
		if address != "" {
			break // the issuer is a name only
		}
	}
	transport, err := g.Egress.Transport(egress.Options{TLS: auth.TLS{CA: []byte(get(caKey))}})
	if err != nil {
		return nil, err
	}
	remote := &remoteIssuer{issuer: t.issuer, keysURL: address, config: config, now: g.Now, client: &http.Client{
		Timeout: issuerTimeout, Transport: &limited{next: transport, limit: rate.NewLimiter(rate.Every(issuerInterval),
			3)}}}
	t.verifier = remote.get
	return t, nil
}

// parseKeys reads a JSON Web Key Set.
func parseKeys(text string) (oidc.KeySet, error) {
	var set jose.JSONWebKeySet
	if len(text) > maxJWKS {
		return nil, fmt.Errorf("the key '%s' is larger than %d bytes", fleet.KeysKey, maxJWKS)
	}
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return nil, fmt.Errorf("the key '%s' is not a JSON Web Key Set: %w. Get it by kubectl get --raw "+
			"/openid/v1/jwks", fleet.KeysKey, err)
	}
	keys := &oidc.StaticKeySet{}
	for _, k := range set.Keys {
		if !k.IsPublic() {
			return nil, fmt.Errorf("the key '%s' has a private or symmetric key: only public keys belong here",
				fleet.KeysKey)
		}
		keys.PublicKeys = append(keys.PublicKeys, k.Key)
	}
	if len(keys.PublicKeys) == 0 {
		return nil, fmt.Errorf("the key '%s' has no keys", fleet.KeysKey)
	}
	return keys, nil
}

// remoteIssuer is an issuer whose keys are read by HTTP, when the first token is verified.
type remoteIssuer struct {
	issuer, keysURL string
	config          *oidc.Config
	client          *http.Client
	now             func() time.Time

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
}

func (i *remoteIssuer) get(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	// The keys are read again while the hub runs, so not with the context of one request.
	client := oidc.ClientContext(context.WithoutCancel(ctx), i.client)
	if i.keysURL != "" {
		i.verifier = oidc.NewVerifier(i.issuer, oidc.NewRemoteKeySet(client, i.keysURL), i.config)
		return i.verifier, nil
	}
	p, err := oidc.NewProvider(client, i.issuer)
	if err != nil {
		return nil, err
	}
	i.verifier = p.VerifierContext(client, i.config)
	return i.verifier, nil
}

// limited bounds the requests that unknown tokens cause.
type limited struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

// RoundTrip implements [http.RoundTripper].
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if !l.limit.Allow() {
		return nil, errors.New("the issuer was asked a moment ago")
	}
	return l.next.RoundTrip(r)
}

// claims are what the errors about a token explain.
type claims struct {
	Issuer    string          `json:"iss"`
	Subject   string          `json:"sub"`
	Audience  json.RawMessage `json:"aud"`
	Expires   float64         `json:"exp"`
	NotBefore float64         `json:"nbf"`
}

// verify returns an error, with what to do, unless a token is one of the cluster for the hub.
func (t *trust) verify(ctx context.Context, cluster, token string) error {
	c, err := read(token)
	if err != nil {
		return refuse(http.StatusUnauthorized, "Send the token of the cluster's ServiceAccount for audience "+
			""+t.audience,
			"the token cannot be read: %v", err)
	}
	if refused := t.explain(cluster, c); refused != nil {
		return refused
	}
	verifier, err := t.verifier(ctx)
	if err != nil {
		refused := refuse(http.StatusServiceUnavailable, "Check that the hub reaches the issuer, or put the issuer's "+
			"public keys into the Secret of the cluster as '"+fleet.KeysKey+"'",
			"the hub cannot read the keys of issuer %s",
			excerpt.Line(t.issuer, 100))
		refused.retryAfter, refused.cause = issuerInterval, err
		return refused
	}
	id, err := verifier.Verify(ctx, token)
	switch {
	case err == nil && id.Subject == t.subject:
		return nil
	case err == nil:
		err = errors.New("another subject")
	}
	return refuse(http.StatusUnauthorized, "If the signing keys of the cluster were replaced, run sluice cluster join "+
		"again, or update '"+fleet.KeysKey+"' in its Secret", "the token is not signed by the keys of cluster '%s': %s",
		cluster,
		excerpt.Line(err.Error(), 200))
}

// explain returns what is wrong with claims. It decides nothing: they are not verified yet.
func (t *trust) explain(cluster string, c *claims) error {
	now := t.now()
	at := func(seconds float64) time.Time { return time.Unix(int64(seconds), 0).UTC() }
	switch {
	case c.Issuer != t.issuer:
		return refuse(http.StatusForbidden, "Correct the name of the cluster, or the issuer in its Secret",
			"the token is from issuer '%s', but that of cluster '%s' is '%s'", excerpt.Line(c.Issuer, 200), cluster,
			t.issuer)
	case c.Subject != t.subject:
		return refuse(http.StatusForbidden, "Correct the subject in the Secret of the cluster, or report as that "+
			"account",
			"the token is for '%s', but cluster '%s' reports as '%s'", excerpt.Line(c.Subject, 200), cluster, t.subject)
	case !c.isFor(t.audience):
		return refuse(http.StatusUnauthorized, "Request a token for audience "+t.audience,
			"the token is for audience %s, not for this hub", excerpt.Line(string(c.Audience), 200))
	case now.After(at(c.Expires)):
		return refuse(http.StatusUnauthorized, "The controller requests a new one by itself. If this stays, compare "+
			"the clocks of the cluster and of the hub", "the token expired at %s, and the clock of the hub is at %s",
			at(c.Expires).Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case now.Add(notBeforeSlack).Before(at(c.NotBefore)):
		return refuse(http.StatusUnauthorized, "Synchronize the clocks of the cluster and of the hub",
			"the token is valid from %s, and the clock of the hub is at %s", at(c.NotBefore).Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *claims) isFor(audience string) bool {
	var one string
	if json.Unmarshal(c.Audience, &one) == nil {
		return one == audience
	}
	var several []string
	return json.Unmarshal(c.Audience, &several) == nil && slices.Contains(several, audience)
}

// read returns the claims of a token, which are not verified.
func read(token string) (*claims, error) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 {
		return nil, errors.New("it is not a signed JSON Web Token")
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, errors.New("it is not a signed JSON Web Token")
	}
	c := &claims{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, errors.New("its claims are not JSON")
	}
	return c, nil
}
