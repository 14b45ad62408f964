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
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	maxRequests  = 64 // of known senders, handled at the same time; a tenant has at most half of what others leave
	maxLogins    = 64 // of senders that are not known yet
	maxOfAddress = 16 // of these, from one address
	readTimeout  = 10 * time.Second
)

// NewServer returns the server to which other programs, such as Flagger, post events. A nil senders accepts events of
// everyone who reaches the server. Quota is how many events one sender may post per second; 0: no limit.
func NewServer(d *Dispatcher, senders Senders, quota int) *http.Server {
	s := &server{dispatcher: d, senders: senders, quotas: quotas{perSecond: quota},
		requests: guard.NewShares(maxRequests)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", s.post)
	handler := guard.Handler("accepting an event", mux)
	server := listen.Server(promhttp.InstrumentHandlerDuration(requestDuration, handler))
	server.ReadTimeout, server.WriteTimeout = readTimeout, 2*readTimeout
	return server
}

type server struct {
	dispatcher *Dispatcher
	senders    Senders
	quotas     quotas
	logins     guard.Counter // by address
	requests   *guard.Shares // by tenant
}

// post responds with 202 when the event is stored. A sender cannot take the slots of all, from however many addresses:
// it may keep each for seconds before its body is complete. Before a sender is known, its address stands for it.
func (s *server) post(w http.ResponseWriter, r *http.Request) {
	const busy = "too many concurrent requests"
	address := addressOf(r)
	if !s.logins.Open(address, maxLogins, maxOfAddress) {
		reject(w, http.StatusServiceUnavailable, time.Second, busy)
		return
	}
	from, err := s.authenticate(r)
	s.logins.Close(address)
	if err != nil {
		refuse(w, r, err)
		return
	}
	tenant := tenantOf(from.name)
	if !s.requests.Take(tenant, 1) {
		reject(w, http.StatusServiceUnavailable, time.Second, busy)
		return
	}
	defer s.requests.Give(tenant, 1)
	if !s.quotas.take(from.name, s.dispatcher.Clock.Now()) {
		// not 429, which means that the event is a duplicate
		reject(w, http.StatusServiceUnavailable, time.Second, "too many events of this sender")
		return
	}
	e, ok := read(w, r)
	if !ok {
		return
	}
	if err := from.maySpeakFor(r.Context(), e.InvolvedObject.Namespace); err != nil {
		refuse(w, r, err)
		return
	}
	s.accept(w, r, e)
}

// read returns the event of a request, or responds with the reason why there is none.
func read(w http.ResponseWriter, r *http.Request) (e event.Event, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, event.MaxSize))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		reject(w, http.StatusRequestEntityTooLarge, 0, "the event has more than "+strconv.Itoa(event.MaxSize)+" bytes")
		return e, false
	case err != nil:
		reject(w, http.StatusBadRequest, 0, "cannot read the request body")
		return e, false
	}
	if e, err = event.Parse(body); err != nil {
		reject(w, http.StatusBadRequest, 0, err.Error())
		return e, false
	}
	return e, true
}

// accept stores an event and responds.
func (s *server) accept(w http.ResponseWriter, r *http.Request, e event.Event) {
	if e.Timestamp.IsZero() { // providers reject events of the year 1
		e.Timestamp = metav1.NewTime(s.dispatcher.Clock.Now().UTC())
	}
	err := s.dispatcher.PostForeign(e)
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
