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
	EventPublished = "published" // an artifact with a new revision or content is available
	EventRemoved   = "removed"   // the source and its artifacts were removed
	EventFailing   = "failing"   // the source cannot be updated; its last artifact stays available
	EventRecovered = "recovered" // a failing source was updated again
	eventReset     = "reset"     // events may have been missed: list all sources again
)

const (
	keptEvents     = 1024 // for subscribers that reconnect
	waitingEvents  = 128  // per subscriber; a subscriber that is further behind is disconnected
	maxSubscribers = 1000
	heartbeat      = 15 * time.Second
	eventTimeout   = 30 * time.Second // for writing one event
)

// Event is a change of a source. It is sent as JSON.
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

// Events sends events to subscribers, and keeps recent events for subscribers that reconnect. Publishing never
// blocks. It is safe for concurrent use.
type Events struct {
	epoch string // identifies this process, because each process numbers events from 1

	mu          sync.Mutex
	ring        []Event
	last        uint64
	subscribers map[*subscriber]struct{}
	closed      bool
}

// subscriber is a client that receives events.
type subscriber struct {
	events chan Event // closed when the subscriber is disconnected
}

// NewEvents returns the events of a process. Epoch distinguishes it from other processes; use its start time.
func NewEvents(epoch time.Time) *Events {
	return &Events{epoch: strconv.FormatInt(epoch.UnixNano(), 36), subscribers: map[*subscriber]struct{}{}}
}

// Publish sends an event to all subscribers.
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
		default: // too far behind: it reconnects with the ID of the last event that it received
			e.drop(s)
		}
	}
}

// Close ends all streams and refuses new subscribers.
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

// subscribe returns a new subscriber and the events after lastID, the last event that it received. Missed is true if
// some of these events are no longer available. The subscriber is nil if there are too many, or after Close.
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

// serve streams the events of sources that the reader may read. The query parameters kind, namespace and name select
// events.
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
	if stream.control.SetReadDeadline(time.Time{}) != nil { // the server's deadline is for a short request
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
		return reader.may(r.Context(), Key{Kind: strings.ToLower(event.Kind), Namespace: event.Namespace,
			Name: event.Name}) == nil
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

// stream writes events to a client. Its methods return false if the client has disconnected.
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
	// The server's deadline is for a download.
	if s.control.SetWriteDeadline(time.Now().Add(eventTimeout)) != nil {
		return false
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
