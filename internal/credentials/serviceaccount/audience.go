package serviceaccount

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// tokenLeeway is how long before its expiry a token is replaced.
const tokenLeeway = 5 * time.Minute

// Tokens requests and caches tokens of the service account of this process, for one audience.
type Tokens struct {
	Accounts Accounts
	Clock    clock.PassiveClock
	Audience string

	mu      sync.Mutex
	token   string
	expires time.Time
}

// Get returns a token, or an empty string if the process does not run as a service account.
func (t *Tokens) Get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && t.Clock.Now().Before(t.expires.Add(-tokenLeeway)) {
		return t.token, nil
	}
	self, err := t.Accounts.Self(ctx)
	if err != nil {
		log.FromContext(ctx).V(1).Info("requests have no token", "audience", t.Audience, "reason", err.Error())
		return "", nil
	}
	status, err := t.Accounts.RequestToken(ctx, self, []string{t.Audience})
	if err != nil {
		return "", err
	}
	t.token, t.expires = status.Token, status.ExpirationTimestamp.Time
	return t.token, nil
}
