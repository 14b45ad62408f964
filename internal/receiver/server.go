package receiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

const (
	maxInFlight = 3 * hook.MaxBody // bytes of bodies that are read at once
	leastShare  = 64 << 10         // of them that a request counts for, so that small ones are not without number
	maxHeader   = 64 << 10         // bytes
	readTime    = 30 * time.Second // for a whole request
	handleTime  = time.Minute      // for acting on it
)

var duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "gotk_receiver_http_request_duration_seconds",
	Help:    "The duration in seconds of the handling of a webhook.",
	Buckets: prometheus.ExponentialBuckets(0.002, 3, 9),
}, []string{"code", "method"})

func init() { metrics.Registry.MustRegister(duration) }

// pathIndex is the index of Receivers by the path of their webhook.
const pathIndex = "status.webhookPath"

// IndexPaths lets the cache find Receivers by path.
func IndexPaths(ctx context.Context, i client.FieldIndexer) error {
	return i.IndexField(ctx, &notificationv1.Receiver{}, pathIndex, func(o client.Object) []string {
		return []string{o.(*notificationv1.Receiver).Status.WebhookPath}
	})
}

// Server takes the requests of all Receivers. It serves on every replica: what it knows is in the cache and in Secrets.
type Server struct {
	Cache  client.Reader // finds Receivers
	Reader client.Reader // past the cache
	Writer client.Writer
	Mapper apimeta.RESTMapper
	Plans  *Plans
	Check  *hook.Checker
	Clock  clock.PassiveClock

	bodies *semaphore.Weighted
}

// NewServer returns the HTTP server.
func NewServer(s *Server) *http.Server {
	s.bodies = semaphore.NewWeighted(maxInFlight)
	mux := http.NewServeMux()
	mux.HandleFunc(notificationv1.ReceiverPathPrefix+"{digest}", s.take)
	return &http.Server{
		Handler: measured(mux), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: readTime + handleTime,
		IdleTimeout: time.Minute,
	}
}

// take answers one request. The answer tells the sender what is wrong with the request, and nothing of the cluster.
func (s *Server) take(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), handleTime)
	defer cancel()
	r, err := s.find(ctx, req.URL.Path)
	if err == nil {
		var woken int64
		if woken, err = s.handle(ctx, w, req, r); err == nil {
			fmt.Fprintf(w, "ok: %d objects\n", woken)
			return
		}
	}
	var refusal *hook.Refusal
	if !errors.As(err, &refusal) {
		refusal = &hook.Refusal{Status: http.StatusInternalServerError,
			Why: "not all that the receiver names could be woken: see the controller's log"}
	}
	if r != nil && refusal.Status != http.StatusOK {
		log.FromContext(ctx).WithName(notificationv1.ReceiverKind).
			Info("a webhook failed", "namespace", r.Namespace, "name", r.Name,
				"status", refusal.Status, "reason", err.Error())
	}
	if refusal.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	http.Error(w, refusal.Why, refusal.Status)
}

var unknown = &hook.Refusal{Status: http.StatusNotFound, Why: "there is no receiver at this path"}

// find returns the Receiver of a path.
func (s *Server) find(ctx context.Context, path string) (*notificationv1.Receiver, error) {
	var found notificationv1.ReceiverList
	if err := s.Cache.List(ctx, &found, client.MatchingFields{pathIndex: path}); err != nil {
		return nil, &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "the controller is starting"}
	}
	for i, r := range found.Items {
		if r.DeletionTimestamp.IsZero() {
			return &found.Items[i], nil
		}
	}
	return nil, unknown
}

func (s *Server) handle(ctx context.Context, w http.ResponseWriter, req *http.Request,
	r *notificationv1.Receiver) (int64, error) {
	if r.Spec.Suspend {
		return 0, &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "the receiver is suspended"}
	}
	if req.Method != http.MethodPost && (r.Spec.Type != notificationv1.GenericReceiver || r.Spec.Action != "") {
		// whoever follows a link must open no gate
		return 0, &hook.Refusal{Status: http.StatusMethodNotAllowed, Why: "send the webhook by POST"}
	}
	p, err := s.Plans.of(ctx, r)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", &hook.Refusal{Status: http.StatusServiceUnavailable,
			Why: "the receiver is not ready"}, err)
	}
	if p.path != req.URL.Path { // the token is another one now, and with it the path
		return 0, unknown
	}
	body, release, err := s.body(w, req)
	defer release()
	if err != nil {
		return 0, err
	}
	delivery, err := s.Check.Verify(ctx, p.trust, hook.Request{Header: req.Header, Body: body})
	if err != nil {
		return 0, err
	}
	c, err := newCall(p, r, delivery, body, s.Clock.Now())
	if err != nil {
		return 0, err
	}
	return (&waker{s.Reader, s.Writer, s.Mapper}).wake(ctx, c)
}

// body reads that of a request, if there is room for it, until release is called.
func (s *Server) body(w http.ResponseWriter, req *http.Request) (body []byte, release func(), err error) {
	size := max(req.ContentLength, leastShare)
	if req.ContentLength < 0 {
		size = hook.MaxBody // it does not tell
	}
	tooLarge := &hook.Refusal{Status: http.StatusRequestEntityTooLarge,
		Why: fmt.Sprintf("the body has more than %d bytes", hook.MaxBody)}
	if size > hook.MaxBody {
		return nil, func() {}, tooLarge
	}
	if !s.bodies.TryAcquire(size) {
		return nil, func() {}, &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "too many requests at once"}
	}
	release = func() { s.bodies.Release(size) }
	body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, hook.MaxBody))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, release, tooLarge
	case err != nil:
		return nil, release, &hook.Refusal{Status: http.StatusBadRequest, Why: "the body cannot be read"}
	}
	return body, release, nil
}

// measured observes how long requests take.
func measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, seen := time.Now(), &status{w, http.StatusOK}
		next.ServeHTTP(seen, r)
		method := r.Method
		if method != http.MethodPost {
			method = "other" // whoever calls must not make series
		}
		duration.WithLabelValues(strconv.Itoa(seen.code), method).Observe(time.Since(start).Seconds())
	})
}

type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}
