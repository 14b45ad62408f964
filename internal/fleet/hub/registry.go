package hub

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// jwksURLKey and caKey are keys of the Secrets that register clusters, besides those of package fleet.
const (
	jwksURLKey = "jwks-url" // where to read the keys instead of at the URL that the issuer names
	caKey      = "ca.crt"   // of the issuer
)

// Registry is the list of clusters that the hub trusts. It is safe for concurrent use.
type Registry struct {
	// Audience is that of tokens for the hub, unless the Secret of a cluster names another.
	Audience string
	// Egress is the policy for requests to issuers.
	Egress *egress.Policy
	Now    func() time.Time

	mu       sync.Mutex
	bySecret map[string]*member // by the name of the Secret
	byName   map[string]*member // by the name of the cluster
	changed  func()
}

// member is a cluster that is registered. It is immutable.
type member struct {
	name, secret string
	created      time.Time
	labels       map[string]string
	mayRead      bool
	hasSSO       bool   // it gets the ID tokens of people who use it by the hub
	identity     string // differs from that of all other members
	trust        *trust
	limit        *rate.Limiter // of its reports and of the streams that it opens
	problem      string        // why the Secret is not valid
}

// allow reports whether the cluster may report, or open a stream, now.
func (m *member) allow(now time.Time) error {
	if m.limit.AllowN(now, 1) {
		return nil
	}
	refused := refuse(http.StatusTooManyRequests, "Run one controller that reports as this cluster",
		"cluster '%s' reports, or opens streams, too often", m.name)
	refused.retryAfter = retryWhenTooFew
	return refused
}

// Set registers the cluster of a Secret, or registers it again after a change.
func (g *Registry) Set(s *corev1.Secret) {
	m := g.parse(s)
	g.mu.Lock()
	if g.bySecret == nil {
		g.bySecret = map[string]*member{}
	}
	g.bySecret[s.Name] = m
	g.index()
	g.mu.Unlock()
	g.notify()
}

// Delete removes the cluster of a Secret.
func (g *Registry) Delete(secret string) {
	g.mu.Lock()
	delete(g.bySecret, secret)
	g.index()
	g.mu.Unlock()
	g.notify()
}

// onChange sets what is called after a change.
func (g *Registry) onChange(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed = f
}

func (g *Registry) notify() {
	g.mu.Lock()
	changed := g.changed
	g.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// index finds the member of each name. Of Secrets that exclude each other, the oldest one is valid.
func (g *Registry) index() {
	g.byName = map[string]*member{}
	identities := map[string]string{}
	for _, m := range slices.SortedFunc(maps.Values(g.bySecret), func(a, b *member) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		return strings.Compare(a.secret, b.secret)
	}) {
		if g.byName[m.name] != nil {
			continue
		}
		if other := identities[m.identity]; other != "" && m.problem == "" {
			invalid := *m
			invalid.trust, invalid.problem = nil, fmt.Sprintf("Secret '%s' names the same issuer, subject and keys: "+
				"one account cannot report for two clusters", other)
			m = &invalid
		} else {
			identities[m.identity] = m.secret
		}
		g.byName[m.name] = m
	}
}

// Names returns the names of all clusters.
func (g *Registry) Names() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.byName))
}

// Has reports whether a cluster is registered.
func (g *Registry) Has(name string) bool { return g.member(name) != nil }

func (g *Registry) member(name string) *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// parse reads a Secret.
func (g *Registry) parse(s *corev1.Secret) *member {
	get := func(key string) string { return strings.TrimSpace(string(s.Data[key])) }
	m := &member{name: s.Labels[fleet.ClusterLabel], secret: s.Name, created: s.CreationTimestamp.Time,
		mayRead: get(fleet.ReadsKey) == "true", hasSSO: get(fleet.SSOKey) == "true",
		limit: rate.NewLimiter(rate.Every(reportInterval), reportBurst)}
	var err error
	if m.labels, err = parseLabels(get(fleet.LabelsKey)); err == nil {
		if err = fleet.CheckName(m.name); err == nil {
			m.trust, err = g.newTrust(get)
		}
	}
	if err != nil {
		m.trust, m.problem = nil, fmt.Sprintf("Secret '%s' is not valid: %v", s.Name, err)
		return m
	}
	m.identity = strings.Join([]string{m.trust.issuer, m.trust.subject, m.trust.audience, get(fleet.KeysKey),
		get(jwksURLKey)}, "\n")
	return m
}

// parseLabels reads labels as key=value, separated by commas or lines.
func parseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("%q is not a label: write key=value", part)
		}
		labels[key] = value
	}
	return labels, fleet.CheckLabels(labels)
}

// refusal is an error of a request, with what to do.
type refusal struct {
	status     int
	body       fleet.Error
	retryAfter time.Duration
	cause      error // for the log only
}

// Error implements error.
func (r *refusal) Error() string {
	if r.body.Hint == "" {
		return r.body.Error
	}
	return r.body.Error + ". " + r.body.Hint
}

func refuse(status int, hint, format string, args ...any) *refusal {
	return &refusal{status: status, body: fleet.Error{Error: fmt.Sprintf(format, args...), Hint: hint}}
}

// authenticate returns which cluster makes a request. The error may be shown.
func (g *Registry) authenticate(ctx context.Context, r *http.Request) (*member, error) {
	name := r.Header.Get(fleet.ClusterHeader)
	if err := fleet.CheckName(name); err != nil {
		return nil, refuse(http.StatusBadRequest, "Send the name of the cluster in the header "+fleet.ClusterHeader,
			"%v", err)
	}
	token := listen.Bearer(r.Header)
	if token == "" {
		return nil, refuse(http.StatusUnauthorized, "Send the token of the cluster's ServiceAccount",
			"the request has no bearer token")
	}
	m := g.member(name)
	if m == nil {
		return nil, refuse(http.StatusForbidden, "Run sluice cluster join, or create the Secret of the cluster with "+
			"the label "+fleet.ClusterLabel, "the hub does not know cluster '%s'", name)
	}
	if m.problem != "" {
		return nil, refuse(http.StatusForbidden, "Repair the Secret in the hub", "the registration of cluster '%s' is "+
			"not valid: %s", name, m.problem)
	}
	if err := m.trust.verify(ctx, name, token); err != nil {
		return nil, err
	}
	return m, nil
}
