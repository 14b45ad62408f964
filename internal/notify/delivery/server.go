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

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	atOnce    = 64       // requests whose bodies are read
	maxHeader = 16 << 10 // bytes
	readTime  = 10 * time.Second
)

// NewServer returns the server that others post events to, such as Flagger. Who may is for the network to
// say: as documented, nobody proves who he is.
func NewServer(b *Bus) *http.Server {
	s := &server{b, make(chan struct{}, atOnce)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", s.take)
	return &http.Server{
		Handler: promhttp.InstrumentHandlerDuration(requests, mux), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: 2 * readTime, IdleTimeout: time.Minute,
	}
}

type server struct {
	bus   *Bus
	slots chan struct{}
}

// take answers 202 once the event is on disk.
func (s *server) take(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		refuse(w, http.StatusServiceUnavailable, time.Second, "too many requests at once")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, event.MaxSize))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		refuse(w, http.StatusRequestEntityTooLarge, 0, "the event has more than "+strconv.Itoa(event.MaxSize)+" bytes")
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, 0, "the body cannot be read")
		return
	}
	e, err := event.Parse(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	if e.Timestamp.IsZero() { // hosts refuse what happened in the year 1
		e.Timestamp = metav1.NewTime(s.bus.Clock.Now().UTC())
	}
	err = s.bus.Post(e)
	var repeated *RepeatedError
	switch {
	case errors.As(err, &repeated):
		refuse(w, http.StatusTooManyRequests, repeated.Wait, repeated.Error())
	case err != nil:
		log.FromContext(r.Context()).WithName("notifications").Error(err, "an event that was posted is refused")
		refuse(w, http.StatusServiceUnavailable, 5*time.Second, "the event cannot be stored: see the controller's log")
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func refuse(w http.ResponseWriter, status int, again time.Duration, why string) {
	if again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(again.Seconds()))))
	}
	http.Error(w, why, status)
}
