package receiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

const (
	maxRequests   = 480              // at a time
	maxBodies     = 4 * hook.MaxBody // bytes of all bodies in memory
	bodyStep      = 64 << 10         // bytes by which the memory of a body grows
	handleTimeout = time.Minute      // for a request after reading it
)

// readTimeout is the time for a request with its body.
var readTimeout = 30 * time.Second

var requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name:    "gotk_receiver_http_request_duration_seconds",
	Help:    "Duration in seconds of webhook requests.",
	Buckets: prometheus.ExponentialBuckets(0.002, 3, 9),
}, []string{"code", "method"})

// Metrics returns the metrics of webhooks.
func Metrics() []prometheus.Collector { return []prometheus.Collector{requestDuration} }

// pathIndex is the cache index of Receivers by webhook path.
const pathIndex = "status.webhookPath"

// IndexPaths adds the index of Receivers by webhook path to the cache.
func IndexPaths(ctx context.Context, i client.FieldIndexer) error {
	return i.IndexField(ctx, &notificationv1.Receiver{}, pathIndex, guard.Indexer("indexing receivers",
		func(o client.Object) []string { return []string{o.(*notificationv1.Receiver).Status.WebhookPath} }))
}

// Server handles the requests for all Receivers. It runs on every replica; it keeps no state but the cache.
type Server struct {
	Cache  client.Reader // for Receivers
	Reader client.Reader // not the cache
	Writer client.Writer
	Mapper apimeta.RESTMapper
	Plans  *Plans
	Check  *hook.Checker
	Clock  clock.PassiveClock

	requests, bodies *guard.Shares // of the namespaces
}

// NewServer returns the HTTP server.
func NewServer(s *Server) *http.Server {
	s.requests, s.bodies = guard.NewShares(maxRequests), guard.NewShares(maxBodies)
	mux := http.NewServeMux()
	mux.HandleFunc(notificationv1.ReceiverPathPrefix+"{digest}", s.serve)
	server := listen.Server(instrument(guard.Handler("handling a webhook", mux)))
	server.ReadTimeout, server.WriteTimeout = readTimeout, readTimeout+handleTimeout
	return server
}

// serve handles a request. The response explains errors of the request and contains nothing about the cluster.
func (s *Server) serve(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), handleTimeout)
	defer cancel()
	r, err := s.find(ctx, req.URL.Path)
	if err == nil {
		var count int64
		if count, err = s.handle(ctx, w, req, r); err == nil {
			fmt.Fprintf(w, "ok: %d objects\n", count)
			return
		}
	}
	var refusal *hook.Refusal
	if !errors.As(err, &refusal) {
		refusal = &hook.Refusal{Status: http.StatusInternalServerError,
			Why: "cannot find or annotate all objects of the receiver; see the controller's log"}
	}
	if r != nil && refusal.Status != http.StatusOK {
		log.FromContext(ctx).WithName(notificationv1.ReceiverKind).
			Info("webhook failed", "namespace", r.Namespace, "name", r.Name,
				"status", refusal.Status, "reason", err.Error())
	}
	if refusal.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	http.Error(w, refusal.Why, refusal.Status)
}

var unknown = &hook.Refusal{Status: http.StatusNotFound, Why: "no receiver has this path"}

// find returns the Receiver with a webhook path.
func (s *Server) find(ctx context.Context, path string) (*notificationv1.Receiver, error) {
	var found notificationv1.ReceiverList
	if err := s.Cache.List(ctx, &found, client.MatchingFields{pathIndex: path}); err != nil {
		return nil, &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "the controller is starting"}
	}
	if r := oldest(found.Items); r != nil { // a newer one is about to be refused
		return r, nil
	}
	return nil, unknown
}

func (s *Server) handle(ctx context.Context, w http.ResponseWriter, req *http.Request,
	r *notificationv1.Receiver) (int64, error) {
	if r.Spec.Suspend {
		return 0, &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "the receiver is suspended"}
	}
	if req.Method != http.MethodPost && (r.Spec.Type != notificationv1.GenericReceiver || r.Spec.Action != "") {
		// opening a link must not open a gate
		return 0, &hook.Refusal{Status: http.StatusMethodNotAllowed, Why: "send the webhook with POST"}
	}
	if !s.requests.Take(r.Namespace, 1) {
		return 0, busy
	}
	defer s.requests.Give(r.Namespace, 1)
	trust, err := s.Plans.trust(ctx, r)
	if err != nil {
		return 0, notReady(err)
	}
	if pathOf(r, trust) != req.URL.Path { // the token changed after the path was indexed
		return 0, unknown
	}
	body, release, err := s.body(w, req, r.Namespace)
	defer release()
	if err != nil {
		return 0, err
	}
	delivery, err := s.Check.Verify(ctx, trust, hook.Request{Header: req.Header, Body: body})
	if err != nil {
		return 0, err
	}
	lease, err := reserve(ctx, r, body)
	if err != nil {
		return 0, err
	}
	defer lease.Release()
	p, err := s.Plans.complete(r, trust)
	if err != nil {
		return 0, notReady(err)
	}
	c := &call{plan: p, receiver: r, at: s.Clock.Now()}
	if err := c.read(delivery, body); err != nil {
		return 0, err
	}
	return (&requester{reader: s.Reader, writer: s.Writer, mapper: s.Mapper}).request(ctx, c)
}

// notReady returns the refusal of a request whose Receiver is invalid.
func notReady(err error) error {
	return fmt.Errorf("%w: %w", &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "the receiver is not ready"},
		err)
}

var busy = &hook.Refusal{Status: http.StatusServiceUnavailable, Why: "too many concurrent requests"}

// body reads the body of a request for a namespace, while there is memory for it. The memory is reserved until release
// is called.
func (s *Server) body(w http.ResponseWriter, req *http.Request, namespace string) (body []byte, release func(),
	err error) {
	reserved := int64(0)
	release = func() { s.bodies.Give(namespace, reserved) }
	tooLarge := &hook.Refusal{Status: http.StatusRequestEntityTooLarge,
		Why: fmt.Sprintf("the body has more than %d bytes", hook.MaxBody)}
	if req.ContentLength > hook.MaxBody {
		return nil, release, tooLarge
	}
	read, from := new(bytes.Buffer), http.MaxBytesReader(w, req.Body, hook.MaxBody)
	for err == nil {
		if !s.bodies.Take(namespace, bodyStep) {
			return nil, release, busy
		}
		reserved += bodyStep
		_, err = io.CopyN(read, from, bodyStep)
	}
	var exceeded *http.MaxBytesError
	switch {
	case errors.As(err, &exceeded):
		return nil, release, tooLarge
	case !errors.Is(err, io.EOF):
		return nil, release, &hook.Refusal{Status: http.StatusBadRequest, Why: "cannot read the request body"}
	}
	return read.Bytes(), release, nil
}

// instrument records the duration of requests.
func instrument(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, response := time.Now(), &statusWriter{w, http.StatusOK}
		next.ServeHTTP(response, r)
		method := r.Method
		if method != http.MethodPost {
			method = "other" // callers must not create series
		}
		requestDuration.WithLabelValues(strconv.Itoa(response.code), method).Observe(time.Since(start).Seconds())
	})
}

// statusWriter records the status code of a response.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}
