package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-gitops/sluice/internal/ui/view"
)

const (
	streamPeriod    = 200 * time.Millisecond // changes within it are sent together
	streamHeartbeat = 20 * time.Second
	streamWrite     = 10 * time.Second // for a client to take an event
)

// stream sends changes of the items that the user may see, as server-sent events `changes`, until the client is gone.
// The client reads the lists again after it connected, so no change is missed.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	u, err := s.Login.User(r)
	if err != nil {
		fail(w, http.StatusUnauthorized, err.Error())
		return
	}
	changes := s.Model.Subscribe()
	defer changes.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if out.send("hello", struct{}{}) != nil {
		return
	}
	heartbeat := time.NewTicker(streamHeartbeat)
	defer heartbeat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-heartbeat.C:
			if u, err = s.Login.User(r); err != nil || out.send("ping", struct{}{}) != nil {
				return // logged out, or gone
			}
			continue
		case <-changes.Ready():
		}
		pause.Reset(streamPeriod)
		select {
		case <-r.Context().Done():
			return
		case <-pause.C:
		}
		if visible := seenBy(u, changes.Take()); len(visible) > 0 && out.send("changes", visible) != nil {
			return
		}
	}
}

func seenBy(u *User, changes []view.Change) []view.Change {
	visible := changes[:0]
	for _, c := range changes {
		if c.VisibleTo(u.May) {
			visible = append(visible, c)
		}
	}
	return visible
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e *eventWriter) send(event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := e.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", event, data); err != nil {
		return err
	}
	return e.control.Flush()
}
