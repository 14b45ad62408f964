package delivery

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	maxRequests    = 64       // handled at the same time
	maxHeaderBytes = 16 << 10 // of a request
	readTimeout    = 10 * time.Second
)

// NewServer returns the server to which other programs, such as Flagger, post events. As documented, it does
// not authenticate them: access is restricted by network policy.
func NewServer(d *Dispatcher) *http.Server {
	s := &server{d, make(chan struct{}, maxRequests)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", s.post)
	handler := guard.Handler("accepting an event", mux)
	return &http.Server{
		Handler: promhttp.InstrumentHandlerDuration(requestDuration, handler), MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: 2 * readTimeout,
		IdleTimeout: time.Minute,
	}
}

type server struct {
	dispatcher *Dispatcher
	slots      chan struct{}
}

// post responds with 202 when the event is stored.
func (s *server) post(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		reject(w, http.StatusServiceUnavailable, time.Second, "too many concurrent requests")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, event.MaxSize))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		reject(w, http.StatusRequestEntityTooLarge, 0, "the event has more than "+strconv.Itoa(event.MaxSize)+" bytes")
		return
	case err != nil:
		reject(w, http.StatusBadRequest, 0, "cannot read the request body")
		return
	}
	e, err := event.Parse(body)
	if err != nil {
		reject(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	if e.Timestamp.IsZero() { // providers reject events of the year 1
		e.Timestamp = metav1.NewTime(s.dispatcher.Clock.Now().UTC())
	}
	err = s.dispatcher.Post(e)
	var duplicate *DuplicateError
	switch {
	case errors.As(err, &duplicate):
		reject(w, http.StatusTooManyRequests, duplicate.Wait, duplicate.Error())
	case err != nil:
		log.FromContext(r.Context()).WithName("notifications").Error(err, "cannot store a posted event")
		reject(w, http.StatusServiceUnavailable, 5*time.Second, "cannot store the event; see the controller's log")
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func reject(w http.ResponseWriter, status int, retryAfter time.Duration, message string) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
	}
	http.Error(w, message, status)
}
