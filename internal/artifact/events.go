package artifact

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Types of events.
const (
	EventPublished = "published" // an artifact of a new revision or content is there
	EventRemoved   = "removed"   // the source is gone, its artifacts with it
	EventFailing   = "failing"   // the source cannot be brought up to date; its artifact stays
	EventRecovered = "recovered" // it can again
	eventReset     = "reset"     // events may have been missed: look at all sources anew
)

const (
	keptEvents     = 1024 // for those who come again
	waitingEvents  = 128  // of one subscriber; one that is further behind is dropped
	maxSubscribers = 1000
	heartbeat      = 15 * time.Second
	eventTimeout   = 30 * time.Second // to write one
)

// Event is what became of a source. It is sent as JSON.
type Event struct {
	Type      string    `json:"type"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Revision  string    `json:"revision,omitempty"`
	Digest    string    `json:"digest,omitempty"`
	URL       string    `json:"url,omitempty"`
	Message   string    `json:"message,omitempty"`
	Time      time.Time `json:"time"`

	id uint64
}

// Events hands events to subscribers, and keeps the last ones for those whose connection broke. Publishing
// never blocks. It is safe for concurrent use.
type Events struct {
	epoch string // of this process: others count anew

	mu          sync.Mutex
	ring        []Event
	last        uint64
	subscribers map[*subscriber]struct{}
	closed      bool
}

// subscriber is a client that listens.
type subscriber struct {
	events chan Event // closed when it is dropped
}

// NewEvents returns events of a process; epoch sets it apart from others, such as by when it started.
func NewEvents(epoch time.Time) *Events {
	return &Events{epoch: strconv.FormatInt(epoch.UnixNano(), 36), subscribers: map[*subscriber]struct{}{}}
}

// Publish tells all subscribers of an event.
func (e *Events) Publish(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	event.id = e.last
	if len(e.ring) == keptEvents {
		e.ring = append(e.ring[:0], e.ring[1:]...)
	}
	e.ring = append(e.ring, event)
	for s := range e.subscribers {
		select {
		case s.events <- event:
		default: // too far behind: it comes again with the ID of the last it got
			e.drop(s)
		}
	}
}

// Close ends all streams; there are no new ones.
func (e *Events) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for s := range e.subscribers {
		e.drop(s)
	}
}

func (e *Events) drop(s *subscriber) {
	if _, ok := e.subscribers[s]; ok {
		delete(e.subscribers, s)
		close(s.events)
	}
}

// subscribe returns a new subscriber with the events since the ID of the last that it got. Missed tells that
// some of those are not known any more. It is nil when there are too many.
func (e *Events) subscribe(lastID string) (s *subscriber, since []Event, missed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.subscribers) >= maxSubscribers {
		return nil, nil, false
	}
	s = &subscriber{events: make(chan Event, waitingEvents)}
	e.subscribers[s] = struct{}{}
	if lastID == "" {
		return s, nil, false
	}
	epoch, number, _ := strings.Cut(lastID, "-")
	last, err := strconv.ParseUint(number, 10, 64)
	if err != nil || epoch != e.epoch || last > e.last || last+uint64(len(e.ring)) < e.last {
		return s, nil, true
	}
	since = append(since, e.ring[uint64(len(e.ring))-(e.last-last):]...)
	return s, since, false
}

func (e *Events) unsubscribe(s *subscriber) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(s)
}

// serve streams the events that the request asks for and the reader may know of: ?kind=, ?namespace= and ?name= choose.
func (e *Events) serve(w http.ResponseWriter, r *http.Request, reader reader) {
	s, since, missed := e.subscribe(r.Header.Get("Last-Event-ID"))
	if s == nil {
		http.Error(w, "there are too many subscribers", http.StatusServiceUnavailable)
		return
	}
	defer e.unsubscribe(s)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	stream := &stream{w: w, control: http.NewResponseController(w), epoch: e.epoch}
	if stream.control.SetReadDeadline(time.Time{}) != nil { // the server's own is that of a request
		return
	}
	if !stream.write(": connected\n\n") {
		return
	}
	if missed && !stream.write("event: "+eventReset+"\ndata: {}\n\n") {
		return
	}
	wants := func(event Event) bool {
		q := r.URL.Query()
		for value, want := range map[string]string{event.Kind: q.Get("kind"), event.Namespace: q.Get("namespace"),
			event.Name: q.Get("name")} {
			if want != "" && !strings.EqualFold(value, want) {
				return false
			}
		}
		return reader.may(r.Context(), Key{strings.ToLower(event.Kind), event.Namespace, event.Name}) == nil
	}
	for _, event := range since {
		if wants(event) && !stream.send(event) {
			return
		}
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			if !stream.write(": heartbeat\n\n") {
				return
			}
		case event, open := <-s.events:
			if !open || wants(event) && !stream.send(event) {
				return
			}
		}
	}
}

// stream writes events to a client. Methods return false when it is gone.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	epoch   string
}

func (s *stream) send(event Event) bool {
	data, err := json.Marshal(event)
	return err == nil && s.write(fmt.Sprintf("id: %s-%d\nevent: %s\ndata: %s\n\n", s.epoch, event.id, event.Type, data))
}

func (s *stream) write(text string) bool {
	// The server's own deadline is that of a download.
	if s.control.SetWriteDeadline(time.Now().Add(eventTimeout)) != nil {
		return false
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
