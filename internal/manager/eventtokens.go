package manager

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/accessreview"
	"github.com/sluice-gitops/sluice/internal/serviceaccount"
)

// tokenLeeway is how long before its expiry a token is replaced.
const tokenLeeway = 5 * time.Minute

// eventTokens requests tokens that are good for posting events only, of the service account of this process.
type eventTokens struct {
	accounts serviceaccount.Accounts
	clock    clock.PassiveClock

	mu      sync.Mutex
	token   string
	expires time.Time
}

// get returns a token, or an empty string if the process does not run as a service account: the other process must
// accept events without a token then.
func (t *eventTokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && t.clock.Now().Before(t.expires.Add(-tokenLeeway)) {
		return t.token, nil
	}
	self, err := t.accounts.Self(ctx)
	if err != nil {
		log.FromContext(ctx).V(1).Info("events are posted without a token", "reason", err.Error())
		return "", nil
	}
	status, err := t.accounts.RequestToken(ctx, self, []string{accessreview.EventsAudience})
	if err != nil {
		return "", err
	}
	t.token, t.expires = status.Token, status.ExpirationTimestamp.Time
	return t.token, nil
}
