package delivery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
)

// DefaultQuota is the default of --events-quota, in events per second and sender.
const DefaultQuota = 100

const (
	quotaBurst = 20   // seconds of the quota that a sender may use at once
	maxSenders = 1000 // that have a quota of their own
)

// Senders authenticates programs that post events. It is implemented by [accessreview.Senders].
type Senders interface {
	Authenticate(ctx context.Context, token string) (*accessreview.Sender, error)
}

// sender is who posted an event.
type sender struct {
	name        string
	maySpeakFor func(ctx context.Context, namespace string) error
}

// authenticate returns the sender of a request, or an error of package accessreview. Without authentication, the
// address stands for the sender.
func (s *server) authenticate(r *http.Request) (sender, error) {
	if s.senders == nil {
		return sender{addressOf(r), func(context.Context, string) error { return nil }}, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return sender{}, accessreview.ErrUnauthenticated
	}
	found, err := s.senders.Authenticate(r.Context(), token)
	if err != nil {
		return sender{}, err
	}
	return sender{found.Name, found.MaySpeakFor}, nil
}

// tenantOf returns the namespace of a service account, as whoever writes there can create many accounts. Other senders
// stand for themselves.
func tenantOf(sender string) string {
	const prefix = "system:serviceaccount:"
	account, ok := strings.CutPrefix(sender, prefix)
	if !ok {
		return sender
	}
	namespace, _, _ := strings.Cut(account, ":")
	return prefix + namespace
}

// addressOf returns the IP address that a request comes from.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// refuse responds to a request that is not authorized.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, accessreview.ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		reject(w, http.StatusUnauthorized, 0,
			"send the token of a service account of this cluster in the header Authorization: Bearer <token>")
	case errors.Is(err, accessreview.ErrForbidden):
		reject(w, http.StatusForbidden, 0,
			"the sender may not create events in the namespace of involvedObject; grant it the verb create on events")
	default:
		log.FromContext(r.Context()).WithName("notifications").Error(err, "cannot authorize a posted event")
		reject(w, http.StatusServiceUnavailable, 5*time.Second, "cannot authorize the event; see the controller's log")
	}
}

// quotas limits how many events each sender posts. A sender above its quota must wait, so no event is lost.
type quotas struct {
	perSecond int // 0: no limit

	mu       sync.Mutex
	limiters lru.Cache[string, *rate.Limiter]
}

// take reports whether a sender may post an event now.
func (q *quotas) take(sender string, now time.Time) bool {
	if q.perSecond <= 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	limiter, ok := q.limiters.Get(sender)
	if !ok {
		limiter = rate.NewLimiter(rate.Limit(q.perSecond), quotaBurst*q.perSecond)
		q.limiters.Add(sender, limiter, 1, lru.Limits{Count: maxSenders})
	}
	return limiter.AllowN(now, 1)
}
